#pragma once
// Schedules without a model: a policy on a chain or on a given stage graph, or orders from a file; simulated, with the
// metrics that people compare.

#include "driver/cli/options.h"
#include "scheduler/standalone/policy_schedule.h"

namespace graphpipe::driver {

struct StandaloneSchedule {
  ir::StageGraph graph;
  ir::Cluster cluster;
  ir::Schedule schedule;
  scheduler::Timeline timeline;
  scheduler::ScheduleMetrics metrics;
};

/// "F,I,W" and a latency, each from 0 to a million. Errors: kUsage.
Result<scheduler::PassCosts> pass_costs(const ScheduleOptions& options);

/// The standalone schedule that the flags of `schedule` ask for. Errors: kUsage, those of the stage graph's file, and
/// those of the policy.
Result<StandaloneSchedule> make_standalone(const ScheduleOptions& options);

/// Simulates a schedule in units of cost. Errors: those of the simulator.
Result<StandaloneSchedule> simulate_standalone(ir::StageGraph graph, ir::Cluster cluster, ir::Schedule schedule);

}  // namespace graphpipe::driver
