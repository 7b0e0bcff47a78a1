#pragma once
// All orders of a plan: per device the list of its actions. Text form: one device per line, actions as
// "2F[0,4)" or "0SEND_F[0,4)e3" separated by spaces (print and parse agree).
//
// How a program is meant (the executor, the validator and the simulator agree on it):
// - A device walks its list in order. Compute actions run one after the other. Communication actions take effect when
//   they are reached and run beside compute: a send is posted and waits for nothing; a receive is posted into the ring
//   slot that it names, which must be free of its previous item; a compute action waits for the messages of its item.
// - The k-th send of a channel meets its k-th receive. A channel is (edge, direction, producer replica, consumer
//   replica) and carries nothing else.
// - A message of a part of its item has a SLICE right before its send, which cuts these samples out; an item that gets
//   a value or a gradient in several pieces has a CONCAT of that edge right before the action that reads it. The stage
//   says which end of the edge it is, and so whether values or gradients are meant. Whole messages have neither.
// - ALLOC and RELEASE may say where the life of an item in its slot begins and ends; without them it lasts from the
//   item's first action to its last. Between an OFFLOAD and its RELOAD, both after the item's forward, what the slot
//   holds is in the host's memory, and only receives of the item may be posted. Each takes the time of a copy through
//   the device's memory. A device that is its own host moves nothing.
// - FLUSH ends the samples of its range on its stage's replica: all their items have ended before it, all other items
//   begin after it. A synchronous step has one before its reductions and steps. TRACE is a mark for the eye.
// - Two stages on one device talk by the same kinds of actions: the send is followed by its receive in the same list
//   and both use a loopback channel, which buffers. Nothing else is special about them.
// - A reduction contributes its gradients when it is reached and does not wait there; the step of the same stage
//   and replica waits for it.
//
// Weight versions and updates (docs/schedules.md, section 3; validated by sections 8.5 and 8.6):
// - Versions count from the start of the step: 0 is what the step finds, a STEP names the version it makes, one above
//   the newest. Compute actions name the version they read; all actions of an item read the same one.
// - A STEP covers a range of samples, its update: it applies the gradients of exactly these samples of its stage, after
//   the last (weight) backward of the update's items on its replica. The updates of a stage tile the step's samples in
//   ascending order, no item lies in two of them, and all replicas of the stage (and all stages of a reduction group)
//   have the same ones. Where a group reduces, each update has one REDUCE with the update's range before its STEP;
//   a replica without items in the range contributes nothing and takes part.
// - Synchronous: one update, the whole step. Asynchronous: a step is a window of `batch` samples through which the
//   pipeline runs once without a flush, with several updates in it; what PipeDream calls a mini-batch is an item, what
//   2BW calls a batch is an update. The window's end drains the pipeline; its newest version is 0 of the next step.
// - The samples of an update are its batch: the loss is normalised by what counts in the range of its stage's update. A
//   stage whose updates are n times as long (replicas that take turns) applies the mean of n of them: its gradient is
//   divided by own range / range of the loss's stage.
// - A STEP changes the newest version in place where no later compute action of its stage and replica reads that
//   version; else it works on a copy, and a FREE of the old version comes after the last action that reads it.
// - PUBLISH v comes after the STEP that makes v > 0 and before the first forward that reads it: from there on v is what
//   forwards read. The end of the step publishes the newest version. It takes no time and waits for nothing.
// - A parameter server is a group of replicas that apply all updates in one order (that of the samples): the update of
//   one replica's item is reduced and stepped on every replica, and forwards read the version that their list names.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/stage_graph.h"
#include "support/units.h"
#include "wire/action.h"

namespace graphpipe::ir {

using Action = wire::ActionRow;
using wire::action_name;
using wire::ActionOp;
using wire::is_compute;
using wire::is_message;
using wire::is_of_item;
using wire::is_receive;
using wire::is_send;
using wire::makes_input_gradient;
using wire::makes_weight_gradients;
using wire::Stream;
using wire::stream_of;

/// One device's actions in order.
struct Program {
  DeviceId device;
  std::vector<Action> actions;
  bool operator==(const Program&) const = default;
};

struct Schedule {
  std::string policy;
  std::vector<Program> programs;
  /// Per stage: slots of its activation ring, that is the most items in flight of one replica.
  IdMap<StageId, int> slots;
  /// Per program: when its first action may start, in ticks of the simulated step; empty: at once. A step that follows
  /// another without a flush leaves the time before it to that step. For the simulator; a program that is run starts as
  /// soon as it can.
  std::vector<Ticks> starts = {};
  bool operator==(const Schedule&) const = default;
};

/// Whether weights change inside the step: some STEP makes a version above 1. See the text above.
bool is_asynchronous(const Schedule& schedule);

/// Of a plan's stages those whose backwards no program divides into input and weight gradients: one function may
/// compute both, in an order that lets tensors go sooner.
IdSet<StageId> undivided_backwards(const Schedule& schedule, size_t stages);

/// Stage and replica.
using ReplicaKey = std::pair<int32_t, int32_t>;
inline ReplicaKey replica_key(const Action& action) { return {action.stage, action.replica}; }

/// Per action of a program: whether it is a STEP whose old version is read later, so that it works on a copy.
std::vector<bool> copying_steps(const Program& program);
/// Per action of a program: weight versions that its stage's replica holds after it.
std::vector<int> held_versions(const Program& program);

constexpr bool is_backward_message(ActionOp op) {
  return op == ActionOp::kSendBackward || op == ActionOp::kReceiveBackward;
}
/// The actions that updates inside of a step consist of.
constexpr bool is_update(ActionOp op) {
  return op == ActionOp::kReduceGradient || op == ActionOp::kStep || op == ActionOp::kPublish ||
         op == ActionOp::kFreeVersion;
}

/// "<stage>[r<replica>]<OP>[<first>,<last>)" and then, where they differ from ActionRow's defaults, "e<edge>",
/// "p<peer replica>", "s<slot>", "v<version>", "c<stream>", "o" (overlaps the next compute action); the stream's
/// default is stream_of the op.
std::string print_action(const Action& action);
/// Errors: kMalformedFile.
Result<Action> parse_action(std::string_view text);

/// Lines: "schedule <policy>", "slots <count of stage 0> ...", where there are any "starts <ticks of the first program>
/// ...", "device <id>: <actions>".
std::string print_schedule(const Schedule& schedule);
/// Errors: kMalformedFile with the line and the text found. Says nothing about whether the schedule is right.
Result<Schedule> parse_schedule(std::string_view text);

}  // namespace graphpipe::ir
