#pragma once
// Gather to rank 0 and broadcast from rank 0: losses, norms, peaks, parameters to save. Blocking; all ranks call them
// in the same order.

#include <algorithm>
#include <deque>
#include <functional>

#include "runtime/executor/channels.h"
#include "runtime/io/safetensors.h"

namespace graphpipe::runtime {

/// Rank 0's bytes on their way to all ranks. Must stay in place until they have arrived.
struct PendingBroadcast {
  std::vector<std::byte> bytes;
  std::deque<PendingMessage> messages;
  bool begun = false;
};

class Gather {
 public:
  /// `meanwhile` runs while it waits: other ranks may need that work to get here.
  Gather(Channels& channels, int32_t devices, std::function<void()> meanwhile)
      : channels_(channels), devices_(devices), meanwhile_(std::move(meanwhile)) {}

  /// On rank 0 the bytes of all ranks in rank order; elsewhere nothing.
  std::vector<std::vector<std::byte>> collect(std::vector<std::byte> own);
  /// Rank 0's bytes, on all ranks.
  std::vector<std::byte> broadcast(std::vector<std::byte> own);
  /// A broadcast in two parts: the ranks compute in between. Broadcasts arrive in the order in which they begin.
  void begin_broadcast(PendingBroadcast& pending, std::vector<std::byte> own);
  std::vector<std::byte> end_broadcast(PendingBroadcast& pending);

  /// On rank 0 the tensors of all ranks sorted by name, each name once (from the lowest rank); elsewhere nothing.
  std::vector<NamedTensor> collect_tensors(const std::vector<NamedTensor>& own);

 private:
  void wait_for(const PendingMessage& pending);
  void send_to_root(std::vector<std::byte>& bytes);

  Channels& channels_;
  int32_t devices_;
  std::function<void()> meanwhile_;
};

template <typename T>
std::vector<std::byte> to_bytes(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}
template <typename T>
std::vector<T> from_bytes(const std::vector<std::byte>& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::copy_n(bytes.begin(), values.size() * sizeof(T), std::as_writable_bytes(std::span(values)).begin());
  return values;
}

}  // namespace graphpipe::runtime
