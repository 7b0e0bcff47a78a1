#pragma once
// From orders of single stages to orders of devices. A policy that thinks stage by stage makes one list per (stage,
// replica); where a device holds several of them, their lists are merged in the order of a simulation.

#include <vector>

#include "scheduler/lowering/items.h"

namespace graphpipe::scheduler {

/// The sample ranges that a replica of a stage works on, ascending; empty ranges are left out.
std::vector<SampleRange> item_ranges(const StageGraph& graph, StageId stage, int replica);
/// All samples of micro-batch number `index` of a stage.
SampleRange micro_batch_range(const StageGraph& graph, StageId stage, int64_t index);
Action compute_action(ActionOp op, StageId stage, int replica, SampleRange range);

/// The result of a merge. Where orders deadlock, `starved` names the (stage, replica) lists that
/// stopped at a backward although a stage below waits for one of their later forwards: they began with too few.
/// `missing` is by how many at the least: with fewer, no stage below that waits for this one gets any further.
struct MergedOrders {
  struct List {
    StageId stage;
    int replica = 0;
    int64_t missing = 1;
  };
  Schedule schedule;
  std::vector<List> starved;
};

/// Merges lists into one compute-only program per device, ascending by device; a device runs whichever head of its
/// lists can start, backwards before forwards, then the lower stage. Lists without a cycle among them never make one.
MergedOrders merge_orders(const StageGraph& graph, const StageOrders& orders);

}  // namespace graphpipe::scheduler
