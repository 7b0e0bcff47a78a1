#pragma once
// The server's end: it holds the weights and the optimizer, applies each micro-batch's gradients as they arrive, and
// sends the resulting weights back to their worker.
//
// The age (staleness) of a gradient is the number of updates between the weights that it was computed at and its own
// update. With R workers it is R - 1 if they take turns, and no smaller bound can be kept. A gradient waits if applying
// it would make one that is still being computed older than the bound; the weights of the first micro-batches of all
// workers count as if they had been read one after the other. So a bound of R - 1 means the order of the samples, and a
// larger one lets workers overtake each other by bound - (R - 1) updates.

#include "runtime/server/served_updates.h"

namespace graphpipe::runtime {

class ParameterServer final : public ServedUpdates {
 public:
  /// All arguments must outlive it; `state` is replica 0's. Throws RunError (kUsage) if the bound is below R - 1.
  ParameterServer(const PlanTable& plan, Channels& channels, const Device& device, const StageState& state,
                  int64_t bound);

  void begin(const ResolvedProgram& program, int64_t first_step) override;
  void before_forward(StageState&) override {}
  /// Applies the next gradients that have arrived and may be applied; the action tells how many have been applied.
  void step(const ResolvedAction& action, StageState& state) override;
  void drain(StageState& state) override;

  std::optional<wire::Staleness> staleness() const override;

 private:
  struct Worker {
    int32_t rank = 0;
    ParameterMessages messages;
    /// Incoming gradients, then outgoing weights.
    std::vector<at::Tensor> tensors;
    /// The micro-batch that it computes, an index into items_; none: it has no more before the drain.
    std::optional<size_t> item;
    /// Number of updates in the weights that it computes with; negative for its first ones.
    int64_t read = 0;
    bool is_sending = false;
  };
  /// Requests the gradients of its micro-batch once the weights have been sent.
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
  std::deque<Worker> workers_;            // a deque, since messages must stay in place
  std::vector<wire::SampleRange> items_;  // since begin()
  int64_t first_step_ = 0;
  int64_t updates_ = 0;  // since begin()
  int64_t all_updates_ = 0, sum_of_ages_ = 0, largest_age_ = 0;
};

}  // namespace graphpipe::runtime
