#include "runtime/collectives/weight_exchange.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "runtime/executor/plan_channels.h"
#include "runtime/executor/resolve.h"
#include "runtime/executor/update_weights.h"
#include "runtime/tensors.h"
#include "support/check.h"

namespace graphpipe::runtime {

ChannelKey weights_channel(int32_t stage, int32_t from, int32_t to) { return {ChannelKind::kWeights, stage, from, to}; }

int64_t largest_weight_message(const StageEntry& entry, int32_t replicas) {
  int64_t largest = 0;
  for (const size_t index : trainable_parameters(entry)) {
    const TensorRow& tensor = entry.params[index].tensor;
    const int64_t bytes = element_size(tensor.type), elements = bytes_of(tensor, 1) / bytes;
    for (int32_t replica = 0; replica < replicas; ++replica)
      largest = std::max(largest, owned_elements(elements, index, replica, replicas).count * bytes);
  }
  return largest;
}

void WeightExchange::begin(int64_t step, wire::SampleRange update) {
  GP_CHECK(!under_way_);
  under_way_ = true;
  const int32_t replicas = plan_.stages[static_cast<size_t>(state_.entry->stage)].replicas;
  // Each begins with the next one, so that not all send to the same.
  for (const size_t parameter : state_.trainable)
    for (int32_t distance = 1; distance < replicas; ++distance) {
      send(parameter, (state_.replica + distance) % replicas, step, update);
      receive(parameter, (state_.replica + replicas - distance) % replicas, step, update);
    }
}

void WeightExchange::send(size_t parameter, int32_t to, int64_t step, wire::SampleRange update) {
  const at::Tensor own = owned_part(state_, parameter, state_.weights[parameter]);
  if (own.numel() == 0) return;  // the other end knows
  const ChannelKey key = weights_channel(state_.entry->stage, state_.replica, to);
  channels_.send(pending_.emplace_back(), key, channels_.takes_device_memory(key) ? own : device_.download(own), step,
                 update, static_cast<int32_t>(parameter));
}

void WeightExchange::receive(size_t parameter, int32_t from, int64_t step, wire::SampleRange update) {
  const at::Tensor& weight = state_.weights[parameter];
  const int32_t replicas = plan_.stages[static_cast<size_t>(state_.entry->stage)].replicas;
  const ElementRange theirs = owned_elements(weight.numel(), parameter, from, replicas);
  if (theirs.count == 0) return;
  const ChannelKey key = weights_channel(state_.entry->stage, from, state_.replica);
  at::Tensor target = elements_in(weight, theirs);
  if (!device_.is_host() && !channels_.takes_device_memory(key)) {
    target = at::empty({theirs.count}, target.options().device(c10::DeviceType::CPU));
    landings_.push_back({parameter, theirs, target});
  }
  channels_.receive(pending_.emplace_back(), key, target, step, update, static_cast<int32_t>(parameter));
}

bool WeightExchange::ready() const {
  return std::ranges::all_of(pending_, [](const PendingMessage& pending) { return pending.done(); });
}

int32_t WeightExchange::waits_for() const {
  for (const PendingMessage& pending : pending_)
    if (!pending.done()) return pending.peer;
  return -1;
}

void WeightExchange::end() {
  GP_CHECK(under_way_ && ready());
  for (const Landing& landing : landings_)
    elements_in(state_.weights[landing.parameter], landing.elements).copy_(device_.upload(landing.memory));
  landings_.clear();
  pending_.clear();
  under_way_ = false;
  follow_weights(state_);
}

}  // namespace graphpipe::runtime
