#include "runtime/server/served_updates.h"

#include <ATen/ops/empty_like.h>

#include <algorithm>

namespace graphpipe::runtime {

ChannelKey server_channel(int32_t replica, bool to_server) {
  return {.kind = ChannelKind::kServer, .index = 0, .from = to_server ? replica : 0, .to = to_server ? 0 : replica};
}

ParameterMessages::ParameterMessages(Channels& channels, const Device& device, const StageState& state, int32_t replica)
    : channels_(channels), device_(device), state_(state), replica_(replica), pending_(state.trainable.size()) {}

void ParameterMessages::send(const std::vector<at::Tensor>& tensors, bool to_server, int64_t step,
                             wire::SampleRange range) {
  const ChannelKey key = server_channel(replica_, to_server);
  const bool on_device = channels_.takes_device_memory(key);
  for (size_t i = 0; i < pending_.size(); ++i) {
    const size_t index = state_.trainable[i];
    channels_.send(pending_[i], key, on_device ? tensors[index] : device_.download(tensors[index]), step, range,
                   static_cast<int32_t>(index));
  }
  into_.clear();
}

void ParameterMessages::receive(const std::vector<at::Tensor>& into, bool to_server, int64_t step,
                                wire::SampleRange range) {
  const ChannelKey key = server_channel(replica_, to_server);
  const bool on_device = channels_.takes_device_memory(key);
  for (size_t i = 0; i < pending_.size(); ++i) {
    const size_t index = state_.trainable[i];
    const at::Tensor& place = into[index];
    const bool staged = !on_device && !place.is_cpu();
    channels_.receive(pending_[i], key,
                      staged ? at::empty_like(place, place.options().device(c10::DeviceType::CPU)) : place, step, range,
                      static_cast<int32_t>(index));
  }
  into_ = into;
}

bool ParameterMessages::done() const {
  return std::ranges::all_of(pending_, [](const PendingMessage& pending) { return pending.done(); });
}

void ParameterMessages::take() {
  for (size_t i = 0; i < pending_.size() && !into_.empty(); ++i) {
    at::Tensor& place = into_[state_.trainable[i]];
    if (!place.is_same(pending_[i].tensor)) place.copy_(device_.upload(pending_[i].tensor));
  }
  into_.clear();
}

}  // namespace graphpipe::runtime
