#pragma once
// Which assignment is used: the planners propose, the simulator decides.

#include "driver/cli/options.h"
#include "ir/plan_graph.h"
#include "ir/stage_graph.h"
#include "partitioner/planner.h"
#include "scheduler/build_schedule.h"

namespace graphpipe::driver {

class SearchLine;

/// How the flags ask the scheduler to build.
scheduler::BuildOptions build_options(const std::string& policy, const ir::PlanGraph& priced,
                                      const OrderOptions& order = {});

/// What the flags say of the order, of no policy yet.
scheduler::BuildOptions ordered_as(const OrderOptions& order);

/// Refuses flags of the order that the policy does not take, and names the policies that do. Errors: kUsage.
Status check_order(std::string_view policy, const OrderOptions& order);

struct ChosenPlan {
  ir::Assignment assignment;
  /// What the planner goes by.
  partitioner::OwnObjective objective;
};

struct Choice {
  /// At least one; the next best that the planner has at hand follow the best.
  std::vector<ChosenPlan> plans;
  double search_seconds = 0;
  bool complete = true;
  /// The best plan of several stages, where `auto` chose one stage with replicas.
  std::optional<ir::Assignment> multi_stage = {};
};

/// What --stages, --micro-batch and --replicas ask of a planner. Needs: the request has its graph. Errors: kUsage.
Status take_flags(const PlanOptions& options, partitioner::PlanRequest& request);

/// Runs the planner that the flags name, with the simulated step as its yardstick, and returns the best candidates.
/// `thorough` is PlanRequest's; `line`, which may be null, hears of each plan. Errors: kUsage for flags that do not
/// parse; those of the planner.
Result<Choice> choose_assignment(const PlanOptions& options, const ir::PlanGraph& priced, const ir::Cluster& cluster,
                                 bool thorough, SearchLine* line);

}  // namespace graphpipe::driver
