#pragma once
// The event simulator: runs the programs of a schedule as ir/schedule.h says they are meant, in integer ticks.
//
// Model. One compute stream per device. A transfer starts when its send is reached and its link is free; it occupies
// the link for bytes / bandwidth and arrives one latency later, while compute goes on. A link is what one level of the
// cluster has between two groups of the level below, one per direction, so transfers contend for the uplinks of a host
// but not for different pairs inside it. Transfers on one device take no time. Reductions of one group start when all
// members have contributed and those before them have left their links, and take an all-reduce over their devices;
// messages do not wait for them. A step waits for its reduction.
// A program begins no earlier than the schedule's start for it. Where the cluster knows what running costs
// (Cluster::runtime), each action takes that much longer, each end of a message keeps its device busy, and every
// program starts after the constant part of the step.

#include "ir/cluster.h"
#include "scheduler/lowering/insert_transfers.h"
#include "scheduler/simulate/durations.h"
#include "scheduler/simulate/timeline.h"

namespace graphpipe::scheduler {

struct SimulateOptions {
  double ticks_per_second = kTicksPerSecond;
  /// Sends block until their receive is reached, and receives until their send: the strictest transport.
  bool rendezvous = false;
  /// Refuses reductions and steps before compute actions of their stage and replica that belong to their update.
  bool synchronous = true;
};

/// Runs the schedule. Takes any actions, also wrong ones: what cannot be run is refused, nothing is assumed of the
/// list. Errors (kBadSchedule): actions that name what the plan does not have; a program that waits forever, with the
/// device, the position and the action.
Result<Timeline> simulate(const StageGraph& graph, const ir::Cluster& cluster, const Schedule& schedule,
                          const SimulateOptions& options = {});

/// The same of a schedule as it was lowered, of which only what it waits for is found out. Needs: a compute order whose
/// updates, if it has any, stand where they may, or a check_schedule of what was lowered.
Result<Timeline> simulate(const StageGraph& graph, const ir::Cluster& cluster, const LoweredSchedule& lowered,
                          const SimulateOptions& options = {});
/// Only its makespan.
Result<Ticks> simulated_makespan(const StageGraph& graph, const ir::Cluster& cluster, const LoweredSchedule& lowered,
                                 const SimulateOptions& options = {});

}  // namespace graphpipe::scheduler
