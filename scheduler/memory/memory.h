#pragma once
// Memory of a schedule, device by device: weights and their state, activations, boundary buffers, gradients.
//
// What is counted, per item, as the runtime holds it in the item's slot: received inputs from their receive, boundary
// outputs from the forward, received gradients from their receive and gradients of the inputs from I, all of them until
// the item's last action; the stash from the forward to I (where the stage recomputes, from R), the part that W needs
// on to W; the workspace while an action runs. A boundary value that the stash holds anyway counts once. Per stage and
// replica: weights, and for the trainable ones the gradient and the optimizer's state; further versions of the
// trainable ones from the step that leaves them behind to their release; from a reduction to the step that waits for
// it, what moves beside the gradients. An offload takes all that its item's slot holds, up to the reload. The bytes of
// an item and of a reduction are those of cost/memory.h.

#include "scheduler/memory/memory_options.h"
#include "scheduler/simulate/timeline.h"

namespace graphpipe::scheduler {

/// Change of a device's memory by one action: `before` when it starts, `after` when it ends.
struct MemoryChange {
  Bytes before, after;
};

struct DeviceMemory {
  /// Held from the first action to the last.
  Bytes fixed;
  /// Per action of the program.
  std::vector<MemoryChange> changes;
  /// Most bytes at once in list order, and the action that runs then.
  Bytes peak;
  size_t peak_position = 0;
};

/// Per program of the schedule. Needs: actions that pass action_problem, with slots.
std::vector<DeviceMemory> memory_of(const StageGraph& graph, const Schedule& schedule, const MemoryOptions& options);

/// One device's memory over time, ascending: from `time` on, `bytes`. Changes of one instant are joined. As for the
/// peak, memory changes in list order: what a message or a reduction takes and frees, it does where the device's
/// computing thread comes to it.
struct MemoryPoint {
  Ticks time;
  Bytes bytes;
};
std::vector<MemoryPoint> memory_over_time(const DeviceMemory& memory, const ir::Program& program,
                                          const std::vector<Span>& spans);

}  // namespace graphpipe::scheduler
