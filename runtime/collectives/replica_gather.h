#pragma once
// The exchange of a stage's replicas over channels: each sends its numbers to every other one. They are two per channel
// of a normalisation, so what counts is the time of a message more than its bytes.

#include <functional>
#include <vector>

#include "runtime/executor/channels.h"
#include "runtime/executor/resolve.h"
#include "runtime/replica_exchange.h"

namespace graphpipe::runtime {

ChannelKey sums_channel(int32_t stage, int32_t from, int32_t to);

class ReplicaGather final : public ReplicaExchange {
 public:
  /// `meanwhile` runs while it waits: other ranks may need that work to get here. All arguments must outlive it.
  ReplicaGather(const PlanTable& plan, Channels& channels, const Instance& instance, std::function<void()> meanwhile)
      : plan_(plan), channels_(channels), instance_(instance), meanwhile_(std::move(meanwhile)) {}

  /// What follows belongs to this action of the step.
  void begin(const wire::ActionRow& row, int64_t step);
  std::span<const double> gather(std::span<const double> own) override;

 private:
  int32_t stage() const { return instance_.entry->stage; }
  void wait_for(const PendingMessage& pending);

  const PlanTable& plan_;
  Channels& channels_;
  const Instance& instance_;
  std::function<void()> meanwhile_;
  wire::SampleRange micro_batch_;
  wire::ActionOp op_ = wire::ActionOp::kForward;
  int64_t step_ = 0;
  int32_t calls_ = 0;  // of the action so far
  std::vector<double> all_;
};

}  // namespace graphpipe::runtime
