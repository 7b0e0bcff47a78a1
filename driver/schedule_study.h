#pragma once
// Schedules without a model: a policy on a chain or on a given stage graph, or orders from a file; simulated, with the
// figures that people compare.

#include "driver/options.h"
#include "scheduler/policy_study.h"

namespace graphpipe::driver {

struct ScheduleStudy {
  ir::StageGraph graph;
  ir::Cluster cluster;
  ir::Schedule schedule;
  scheduler::Timeline timeline;
  scheduler::StudyFigures figures;
};

/// "F,I,W" and a latency, each from 0 to a million. Errors: kUsage.
Result<scheduler::StudyCosts> study_costs(const ScheduleOptions& options);

/// The study that the flags of `schedule` ask for. Errors: kUsage, those of the stage graph's file, and those of the
/// policy.
Result<ScheduleStudy> make_study(const ScheduleOptions& options);

/// Simulates a schedule in units of cost. Errors: those of the simulator.
Result<ScheduleStudy> simulate_study(ir::StageGraph graph, ir::Cluster cluster, ir::Schedule schedule);

}  // namespace graphpipe::driver
