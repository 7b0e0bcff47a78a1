#pragma once
// The one lowering from compute orders to full programs: sends and receives with sample ranges, slices and
// concatenations where the sizes of the items at both ends differ, ring slots, recompute, flushes, reductions and
// optimizer steps. Policies know nothing of these.
//
// Transfers are placed as in PyTorch's pipelining: devices take turns; when a compute action is placed, its sends are
// appended to its own list and the matching receives to the peers' lists at the same instant. All lists are therefore
// projections of one global order of messages, which makes them safe under rendezvous, where a send blocks until its
// receive is reached, and so under every weaker transport.

#include "ir/cluster.h"
#include "scheduler/lowering/items.h"

namespace graphpipe::scheduler {

struct LoweringOptions {
  /// Adds the flushes, reductions and optimizer steps that end a synchronous step; not to a schedule that holds updates
  /// already.
  bool finish_step = true;
  /// Adds a global gradient norm between the reductions and the steps.
  bool norm = false;
  /// Leaves out what takes no time in a simulation: slices, concatenations, and the items' ring slots.
  bool only_what_takes_time = false;
};

/// Needs: a schedule of compute actions, and of updates where it is asynchronous (updates.h), whose ranges follow
/// ir::item_range or any other tiling of the step's samples. Ensures: messages cover each consumer item's range
/// exactly, the k-th send of a channel meets its k-th receive; slot = number of the item on its replica mod
/// slots(stage), where slots is the least ring that no two live items share (an item lives from its first receive to
/// its last backward or send); the starts are those given. Stages with `recompute` get an R right before each first
/// backward action. What ends the step is that of finish_step.h. Errors: kBadSchedule, naming the first action that is
/// part of a deadlock or that has no place.
Result<Schedule> insert_transfers(const StageGraph& graph, Schedule compute, const LoweringOptions& options = {});

/// A schedule with what its lowering knows of it.
struct LoweredSchedule {
  Schedule schedule;
  ItemTable items;
  /// Per program the items of its actions, without those of updates, which belong to none.
  std::vector<std::vector<ItemIndex>> items_of;
};
/// The same, for whoever simulates it next. Needs, ensures, errors: as above.
Result<LoweredSchedule> lower_transfers(const StageGraph& graph, Schedule compute, const LoweringOptions& options = {});

/// Stages whose reductions are one collective: those that share a weight group, directly or through others, carry the
/// lowest of their ids. -1 where a stage has nothing to reduce: one replica and no shared trainable weights.
IdMap<StageId, int> reduction_groups(const StageGraph& graph);

}  // namespace graphpipe::scheduler
