#pragma once
// The yardstick of all plans, of models and of profiles: the simulated step, and for large schedules the closed form.

#include "ir/stage_graph.h"
#include "scheduler/build_schedule.h"

namespace graphpipe::driver {

/// Passes that one step schedules: micro-batches of all stages, each once per replica that takes part in it.
int64_t schedule_size(const ir::PlanGraph& graph, const ir::Assignment& assignment);

/// Seconds of one step, infinite for a plan without a schedule. Where the schedule is larger than `max_simulated`,
/// which takes long to simulate, cost::iteration_time, infinite for a plan that does not fit. `drain_every` as in
/// scheduler::order_batches.
double step_of(const ir::PlanGraph& graph, const ir::Cluster& cluster, const scheduler::BuildOptions& options,
               ir::Assignment assignment, int64_t max_simulated, int64_t drain_every);

}  // namespace graphpipe::driver
