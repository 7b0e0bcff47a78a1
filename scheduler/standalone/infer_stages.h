#pragma once
// A standalone schedule from a bare schedule: what graph of stages its actions speak of. For files that hold orders and
// nothing else.
//
// Stages and replicas are those that the actions name, on the devices of their programs. Edges are those of the
// messages; without messages the stages are a chain. The micro-batch of a stage is its largest item, the batch the last
// sample.

#include "scheduler/standalone/standalone_stages.h"
#include "scheduler/validate/check_schedule.h"

namespace graphpipe::scheduler {

/// Whose numbers the edges of message actions are.
enum class EdgeNumbers : uint8_t {
  kChain,        // edge s joins stages s and s + 1, whether actions name it or not
  kFromActions,  // the actions tell both ends
};

/// A stage graph, or the first action from which none can be inferred: a stage or replica that no action names below
/// one that is named, a replica on two devices, more stages than actions, an edge with one end or against the order of
/// the stages.
struct InferredStages {
  StageGraph graph;
  std::optional<ScheduleProblem> problem;
};
InferredStages infer_stages(const Schedule& schedule, EdgeNumbers numbers);

/// Gives every stage these costs per micro-batch.
void set_costs(StageGraph& graph, const PassCosts& costs);

/// A valid schedule, completed with its stage graph, messages and slots.
struct WholeSchedule {
  StageGraph graph;
  ir::Cluster cluster;
  /// With messages and slots.
  Schedule schedule;
};

struct Verdict {
  /// Present where the schedule is right.
  std::optional<WholeSchedule> whole;
  /// Present where it is not. Places count the actions of the schedule that was given.
  std::optional<ScheduleProblem> problem;
};

/// Infers, checks and completes a schedule: compute orders get their transfers; orders with messages but without slots
/// get slots and the messages between stages of one device, which such files leave out. A latency lies on every edge
/// between devices. Claims are proven of schedules with steps; where nothing is updated there are no
/// versions, and every claim holds.
Verdict complete_schedule(const Schedule& given, EdgeNumbers numbers, const PassCosts& costs,
                          const VersionClaims& claims = {});

}  // namespace graphpipe::scheduler
