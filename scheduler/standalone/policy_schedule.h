#pragma once
// Schedules without a model: the stages that a policy is defined on, its schedule, and the metrics that people compare.

#include "scheduler/policies/policies.h"
#include "scheduler/simulate/simulate.h"
#include "scheduler/standalone/standalone_stages.h"

namespace graphpipe::scheduler {

struct PolicySchedule {
  int ranks = 1;
  /// Stages per rank; 0: as the policy wants it, that is two in a V and else one.
  int chunks = 0;
  int64_t micro_batches = 1;
  PassCosts costs;
};

/// A chain, or one stage with replicas, as the policy's shape says.
/// Errors (kUsage): chunks that the shape does not have.
Result<StageGraph> policy_schedule(const Policy& policy, const PolicySchedule& standalone);

/// Puts the stages of a graph on `ranks` devices as the shape says (any: in turn, as in a loop).
/// Errors (kUsage): stages that do not divide over the devices in this shape.
Status place_stages(StageGraph& graph, StageShape shape, int ranks);

/// The graph with its stages placed and as the policy takes it: forwards alone where it wants no more, with something
/// to train where it speaks of weight versions. Errors: those of place_stages.
Result<StageGraph> placed_for(const Policy& policy, StageGraph graph, int ranks);
/// The same for a graph whose stages have their devices already.
StageGraph as_taken_by(const Policy& policy, StageGraph graph);

struct ScheduleMetrics {
  double makespan = 0, longest_rank_span = 0;
  /// 1 - work / (devices * makespan), and the same of the longest rank span.
  double bubble_fraction = 0, bubble_fraction_of_span = 0;
  double lower_bound = 0;
  /// Per program: most items from F to their last backward action, and from F to their B or I.
  std::vector<int> peak_to_weight_gradient, peak_to_input_gradient;
  /// Per stage: most samples between their forward and their B or I, over all replicas.
  std::vector<int64_t> in_flight_samples;
  /// Per stage, where backwards are split: forwards before the first I of a replica, and the most items that still wait
  /// for their W when the next I begins. Empty where no backward is split.
  std::vector<int64_t> warm_up, weight_lag;
};
/// In units of cost. Needs: a timeline in ticks of kTicksPerUnit.
ScheduleMetrics schedule_metrics(const StageGraph& graph, const ir::Cluster& cluster, const Schedule& schedule,
                                 const Timeline& timeline);

/// Per stage the compute actions of all its replicas in the order of their devices' lists: "F0", "B0", "I3"; numbers
/// count the stage's micro-batches in the order of samples.
std::vector<std::vector<std::string>> stage_lists(const StageGraph& graph, const Schedule& schedule);

}  // namespace graphpipe::scheduler
