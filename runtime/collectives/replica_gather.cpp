#include "runtime/collectives/replica_gather.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <deque>

#include "runtime/step_samples.h"

namespace graphpipe::runtime {

ChannelKey sums_channel(int32_t stage, int32_t from, int32_t to) { return {ChannelKind::kSums, stage, from, to}; }

void ReplicaGather::begin(const wire::ActionRow& row, int64_t step) {
  micro_batch_ = micro_batch_of(plan_, stage(), row.range);
  op_ = row.op;
  step_ = step;
  calls_ = 0;
}

std::span<const double> ReplicaGather::gather(std::span<const double> own) {
  // Replicas whose passes or calls differ find it in the headers.
  const int32_t part = calls_++ * wire::kActionOpCount + static_cast<int32_t>(op_);
  const int32_t replicas = plan_.stages[static_cast<size_t>(stage())].replicas;
  all_.resize(static_cast<size_t>(replicas) * own.size());
  const auto place_of = [&](int32_t replica) { return all_.data() + static_cast<size_t>(replica) * own.size(); };
  const auto tensor_of = [&](int32_t replica) {
    return at::from_blob(place_of(replica), {static_cast<int64_t>(own.size())}, at::kDouble);
  };
  std::ranges::copy(own, place_of(instance_.replica));
  std::deque<PendingMessage> messages;
  for (int32_t other = 0; other < replicas; ++other) {
    if (other == instance_.replica) continue;
    channels_.receive(messages.emplace_back(), sums_channel(stage(), other, instance_.replica), tensor_of(other), step_,
                      micro_batch_, part);
    channels_.send(messages.emplace_back(), sums_channel(stage(), instance_.replica, other),
                   tensor_of(instance_.replica), step_, micro_batch_, part);
  }
  for (const PendingMessage& message : messages) wait_for(message);
  return all_;
}

void ReplicaGather::wait_for(const PendingMessage& pending) {
  channels_.wait_until([&] { return pending.done(); }, [&] { return pending.peer; }, meanwhile_);
}

}  // namespace graphpipe::runtime
