#pragma once
// From the stages that a search found to ranked candidates; what all planners share.

#include <map>
#include <optional>
#include <string>

#include "cost/iteration_time.h"
#include "ir/stage_graph.h"
#include "partitioner/graphpipe/pipeline_dp.h"
#include "partitioner/planner.h"
#include "support/stopwatch.h"
#include "support/units.h"

namespace graphpipe::partitioner {

/// Micro-batch sizes to try: the one asked for, or the powers of two below the batch and the batch.
std::vector<Samples> micro_batch_sizes(const PlanRequest& request);

/// Sizes whose number of micro-batches differs by one or two from that of a size, largest first; of each number the
/// smallest size.
std::vector<Samples> neighbouring_sizes(Samples batch, Samples size);

/// Devices that a search may hand out, and whether it may replicate: forced replicas are added afterwards.
struct DeviceBudget {
  int devices = 1;
  int largest_replication = 1;
};
Result<DeviceBudget> device_budget(const PlanRequest& request);

/// Gives each stage the replicas that the request forces, or one, on devices in the order of the stages. Needs: stages
/// with their topological numbers. Errors (kNoFeasiblePlan): no such stage, or too few devices.
Status force_replicas(const PlanRequest& request, ir::Assignment& assignment);

/// Lets stages recompute as the request asks: all with a node that has a backward, none, or those that do already.
void set_recompute(const PlanRequest& request, ir::Assignment& assignment);

/// Divides the optimizer's state of every stage over its replicas, if the request asks for it and there is state.
void divide_states(const PlanRequest& request, ir::StageGraph& stages, ir::Assignment& assignment);

/// Seconds of a step in closed form, and bounds on it of every order and of every plan on a cluster.
double closed_form(const PlanRequest& request, const ir::StageGraph& stages, const cost::IterationTime& step);
double min_step_of_orders(const PlanRequest& request, const ir::StageGraph& stages);
double min_step_of_plans(const PlanRequest& request, const ir::Cluster& cluster);
/// Whether some order of the plan may take less than `seconds`: to simulate a plan of many stages takes long.
bool may_beat(const PlanRequest& request, ir::Assignment assignment, double seconds);

/// How a plan uses memory: not within its limits, with fewer samples in flight than its slowest stage could keep up
/// with, or freely. A plan that breaks a rule fits no memory.
enum class MemoryFit : uint8_t { kDoesNotFit, kThrottled, kFits };

/// Plans of a search that are simulated, where it does not ask for more.
inline constexpr size_t kMaxSimulated = 8;
/// Most plans of an answer, where a search does not ask for more.
inline constexpr size_t kMaxReturned = 12;

/// Collects assignments, without duplicates, and ranks them: all by cost::iteration_time, the best few by the request's
/// `evaluate`.
class Candidates {
 public:
  explicit Candidates(const PlanRequest& request) : request_(request) {}

  /// Stages that work on the whole batch get it as their micro-batch. All get topological numbers, forced replicas, and
  /// devices in that order; where devices differ, also in others (heterogeneous/device_order.h). Returns the best fit
  /// among them; kFits where memory is not limited.
  MemoryFit add(const std::vector<FoundStage>& stages);
  /// The same with the devices of an order, one stage after the other as they were found.
  MemoryFit add(const std::vector<FoundStage>& stages, const std::vector<ir::DeviceId>& order);
  /// The same with its stages packed into groups of so many devices (heterogeneous/group_packing.h).
  MemoryFit add_packed(const std::vector<FoundStage>& stages, size_t group);
  /// The same for an assignment whose devices are kept. Where the request allows it and the plan does not fit
  /// otherwise, its stages divide the optimizer's state.
  MemoryFit add(ir::Assignment assignment);
  /// A stage lacks at least so much.
  void note_shortfall(double bytes);
  /// Takes over what another search of the same request found.
  void absorb(Candidates other);
  /// Only why the other search found nothing more.
  void absorb_refusals(const Candidates& other);
  /// The best by cost::iteration_time, at most so many.
  std::vector<PlanCandidate> best(size_t limit) const;
  /// Of any of them; infinity where there is none.
  double min_step() const;
  double min_objective() const;
  /// Forgets all but the best by cost::iteration_time and one with the least objective. Where memory is tight, all of
  /// the best may turn out to have no schedule that fits: the first of those that are kept has one, if time allows.
  /// Needs: `limit` above 0.
  void drop_all_but(size_t limit);

  /// The best few, and the one with the smallest objective. At most `max_simulated` are simulated, the best by
  /// cost::iteration_time, and one with the smallest objective. At most `max_returned` are in the answer; where that is
  /// more than usual, also plans that cannot be shorter than the best one, which may turn out not to fit. Errors:
  /// kNoFeasiblePlan where there is no candidate, or kInterrupted where the search was cut off before any.
  Result<PlanAnswer> answer(bool complete, double search_seconds, size_t max_simulated = kMaxSimulated,
                            size_t max_returned = kMaxReturned);

 private:
  /// The stages as they are, on devices 0, 1, ...
  ir::Assignment assignment_of(const std::vector<FoundStage>& stages) const;
  /// Adds it unless it is there already.
  void keep(PlanCandidate candidate);
  /// Returns whether time was left for all that it had to simulate.
  bool simulate_best(size_t max_simulated, bool keeps_slower);
  /// Forgets those by cost::iteration_time before the first that `evaluate` has a step of.
  void drop_best_without_schedule();
  /// Keeps why a plan is none.
  void refuse(const Diagnostic& problem);
  /// Asks why the last plan that keeps all rules cannot be used, where there is one.
  void explain_refusal();

  const PlanRequest& request_;
  const Stopwatch watch_;
  std::vector<PlanCandidate> found_;
  /// Where in found_ the plans with a step of so many seconds are: equal plans have equal steps.
  std::multimap<double, size_t> at_step_;
  double shortfall_ = kInfinity;
  std::string refusal_;
  /// What it is about, such as a node; may be empty.
  ModelText place_;
  /// Keeps all rules, but `evaluate` said infinity.
  std::optional<ir::Assignment> refused_;
  /// What to do about it, where that is known.
  std::string cure_;
};

}  // namespace graphpipe::partitioner
