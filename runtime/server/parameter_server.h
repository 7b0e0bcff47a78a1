#pragma once
// The server's end: it holds the weights and the optimizer, applies each micro-batch's gradients as they come, and
// sends the weights that follow back to their worker.
//
// The age of a gradient is the number of updates that were made after the weights that it was computed at. With R
// workers it is R - 1 where they take turns, and no bound below that can be kept. A gradient waits where applying it
// would make one that is still computed older than the bound; the weights at which the first micro-batches of all
// workers begin count as if they had been read one after the other. So R - 1 as a bound means the order of the samples,
// and every larger one leaves the workers bound - (R - 1) updates to overtake each other by.

#include "runtime/server/served_updates.h"

namespace graphpipe::runtime {

class ParameterServer final : public ServedUpdates {
 public:
  /// All must outlive it; `state` is replica 0's. Throws RunError (kUsage) where the bound is below R - 1.
  ParameterServer(const PlanTable& plan, Channels& channels, const Device& device, const StageState& state,
                  int64_t bound);

  void begin(const ResolvedProgram& program, int64_t first_step) override;
  void before_forward(StageState&) override {}
  /// Applies the next gradients that have come and may be applied; the action says how many have been.
  void step(const ResolvedAction& action, StageState& state) override;
  void drain(StageState& state) override;

  std::optional<wire::Staleness> staleness() const override;

 private:
  struct Worker {
    int32_t rank = 0;
    ParameterMessages messages;
    /// Gradients that come, then weights that go.
    std::vector<at::Tensor> tensors;
    /// The micro-batch that it computes, an index into items_; none: it has no more before the drain.
    std::optional<size_t> item;
    /// Updates before the weights that it computes at; negative for its first ones.
    int64_t read = 0;
    bool is_sending = false;
  };
  /// Asks for the gradients of its micro-batch once the weights have gone.
  void advance(Worker& worker);
  void advance_all();
  bool may_apply(const Worker& worker) const;
  Worker* next_worker();
  void apply(Worker& worker, int64_t update, StageState& state);
  void send_weights(Worker& worker, const StageState& state);
  int32_t waits_for() const;

  const PlanTable& plan_;
  Channels& channels_;
  int64_t bound_;
  std::deque<Worker> workers_;            // each stays in place, as its messages must
  std::vector<wire::SampleRange> items_;  // since begin()
  int64_t first_step_ = 0;
  int64_t updates_ = 0;  // since begin()
  int64_t all_updates_ = 0, sum_of_ages_ = 0, largest_age_ = 0;
};

}  // namespace graphpipe::runtime
