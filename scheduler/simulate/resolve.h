#pragma once
// Static look-ups of a schedule: which item each action belongs to, which receive meets which send, which link it
// takes. Made once, so that the simulator's loop only follows indices.

#include "ir/cluster.h"
#include "scheduler/action_problem.h"
#include "scheduler/lowering/insert_transfers.h"
#include "scheduler/simulate/durations.h"
#include "scheduler/simulate/timeline.h"

namespace graphpipe::scheduler {

/// An action of the flat list of all actions.
using ActionIndex = int32_t;

struct ResolvedAction {
  /// The item of the action; -1 for the actions of updates and control.
  ItemIndex item = -1;
  /// The other end of a transfer; -1 for all else.
  ActionIndex partner = -1;
  /// Index of the ring slot among all slots of the plan, or -1.
  int32_t slot = -1;
  /// Link of a send; -1 for a transfer on one device.
  int32_t link = -1;
  /// Compute, offload, reload: its length. Send: the time that it occupies its link.
  Ticks duration;
  /// Sends: from the end of the occupation to the arrival.
  Ticks latency;
  /// Messages: what each end takes of its device's compute.
  Ticks busy;
};

struct ResolvedSchedule {
  ItemTable items;
  /// First action of each program, and one past the last.
  std::vector<ActionIndex> first_action;
  std::vector<ResolvedAction> actions;
  std::vector<int32_t> program_of_action;
  int32_t slot_count = 0;
  int32_t link_count = 0;
  /// Samples, summed over edges, that each item's forward and backward wait for.
  std::vector<int64_t> forward_needs, backward_needs;
};

/// Errors (kBadSchedule): an action that names a stage, replica, edge, slot or device that does not exist or that is
/// not its own; a message that no item of its replica contains; a send without its receive or the reverse; a channel
/// whose k-th send and k-th receive differ in their range; what list_order.h says.
Result<ResolvedSchedule> resolve(const StageGraph& graph, const ir::Cluster& cluster, const Schedule& schedule,
                                 double ticks_per_second);

/// The same of a schedule as it was lowered, without a check of its lists. Needs: as simulate says.
Result<ResolvedSchedule> resolve(const StageGraph& graph, const ir::Cluster& cluster, const LoweredSchedule& lowered,
                                 double ticks_per_second);

}  // namespace graphpipe::scheduler
