#pragma once
// A time that no order of the same actions can beat (docs/schedules.md, section 7): to be reported next to every
// makespan.

#include "ir/cluster.h"
#include "scheduler/terms.h"

namespace graphpipe::scheduler {

/// In the seconds of the stages' costs. The largest over the devices, and over their stages one by one, of
///   head + all of the work + tail                   where backwards are whole,
///   head + all of the work, and head + the work without W + tail   where some backward is split,
/// with head the longest path of forwards and latencies to the stage, tail the longest path of backwards back to a
/// source (split: of input gradients, ending with a W). The first item of a stage with larger micro-batches needs
/// several items of the stage above. Where a device holds several stages, head and tail are the least among them. Also
/// the bytes of each link over its bandwidth. Reductions and optimizer steps are left out.
double schedule_bound(const StageGraph& graph, const ir::Cluster& cluster, const Schedule& schedule);

}  // namespace graphpipe::scheduler
