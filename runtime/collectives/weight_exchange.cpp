#include "runtime/collectives/weight_exchange.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "runtime/executor/plan_channels.h"
#include "runtime/executor/resolve.h"
#include "runtime/executor/update_weights.h"
#include "runtime/tensors.h"
#include "support/check.h"

namespace graphpipe::runtime {

ChannelKey weights_channel(int32_t stage, int32_t from, int32_t to) { return {ChannelKind::kWeights, stage, from, to}; }

std::vector<SentTogether> weight_messages(const StageEntry& entry) {
  // What is copied into a message of several takes memory beside the weights; of biases and norms that is little.
  constexpr int64_t kSmallBytes = 1 << 14, kMessageBytes = 1 << 20;
  std::vector<SentTogether> messages;
  int64_t room = 0;
  for (const size_t index : trainable_parameters(entry)) {
    const TensorRow& tensor = entry.params[index].tensor;
    const int64_t bytes = bytes_of(tensor, 1);
    const bool joins = room > 0 && bytes <= std::min(room, kSmallBytes) &&
                       entry.params[messages.back().front()].tensor.type == tensor.type;
    if (!joins) messages.emplace_back();
    messages.back().push_back(index);
    room = bytes > kSmallBytes ? 0 : (joins ? room : kMessageBytes) - bytes;
  }
  return messages;
}

int64_t largest_weight_message(const StageEntry& entry, int32_t replicas) {
  int64_t largest = 0;
  for (const SentTogether& parameters : weight_messages(entry))
    for (int32_t replica = 0; replica < replicas; ++replica) {
      int64_t sum = 0;
      for (const size_t index : parameters) {
        const TensorRow& tensor = entry.params[index].tensor;
        const int64_t bytes = element_size(tensor.type), elements = bytes_of(tensor, 1) / bytes;
        sum += owned_elements(elements, index, replica, replicas).count * bytes;
      }
      largest = std::max(largest, sum);
    }
  return largest;
}

WeightExchange::WeightExchange(const PlanTable& plan, Channels& channels, const Device& device, StageState& state)
    : channels_(channels),
      device_(device),
      state_(state),
      replicas_(plan.stages[static_cast<size_t>(state.entry->stage)].replicas),
      messages_(weight_messages(*state.entry)) {}

ElementRange WeightExchange::part_of(size_t parameter, int32_t replica) const {
  return owned_elements(state_.weights[parameter].numel(), parameter, replica, replicas_);
}

void WeightExchange::begin(int64_t step, wire::SampleRange update) {
  GP_CHECK(!under_way_);
  under_way_ = true;
  for (size_t message = 0; message < messages_.size(); ++message) {
    send(message, step, update);
    for (int32_t distance = 1; distance < replicas_; ++distance)
      receive(message, (state_.replica + replicas_ - distance) % replicas_, step, update);
  }
}

at::Tensor WeightExchange::own_message(const SentTogether& parameters) const {
  std::vector<at::Tensor> parts;
  for (const size_t parameter : parameters) parts.push_back(owned_part(state_, parameter, state_.weights[parameter]));
  return parts.size() == 1 ? parts.front() : at::cat(parts);
}

void WeightExchange::send(size_t message, int64_t step, wire::SampleRange update) {
  const at::Tensor own = own_message(messages_[message]);
  if (own.numel() == 0) return;  // the other end knows
  at::Tensor on_host;
  // Each begins with the next one, so that not all send to the same.
  for (int32_t distance = 1; distance < replicas_; ++distance) {
    const ChannelKey key =
        weights_channel(state_.entry->stage, state_.replica, (state_.replica + distance) % replicas_);
    const bool on_device = channels_.takes_device_memory(key);
    if (!on_device && !on_host.defined()) on_host = device_.download(own);
    channels_.send(pending_.emplace_back(), key, on_device ? own : on_host, step, update,
                   static_cast<int32_t>(message));
  }
}

void WeightExchange::receive(size_t message, int32_t from, int64_t step, wire::SampleRange update) {
  int64_t elements = 0;
  for (const size_t parameter : messages_[message]) elements += part_of(parameter, from).count;
  if (elements == 0) return;
  const size_t first = messages_[message].front();
  const ChannelKey key = weights_channel(state_.entry->stage, from, state_.replica);
  const bool lands_there = device_.is_host() || channels_.takes_device_memory(key);
  at::Tensor target;
  if (lands_there && messages_[message].size() == 1) {
    target = elements_in(state_.weights[first], part_of(first, from));
  } else {
    const at::TensorOptions options = state_.weights[first].options();
    target = at::empty({elements}, lands_there ? options : options.device(c10::DeviceType::CPU));
    landings_.push_back({message, from, target});
  }
  channels_.receive(pending_.emplace_back(), key, target, step, update, static_cast<int32_t>(message));
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
  for (const Landing& landing : landings_) {
    const at::Tensor arrived = device_.upload(landing.memory);
    int64_t next = 0;
    for (const size_t parameter : messages_[landing.message]) {
      const ElementRange part = part_of(parameter, landing.from);
      elements_in(state_.weights[parameter], part).copy_(arrived.narrow(0, next, part.count));
      next += part.count;
    }
  }
  landings_.clear();
  pending_.clear();
  under_way_ = false;
  follow_weights(state_);
}

}  // namespace graphpipe::runtime
