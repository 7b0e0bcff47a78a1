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
// - Two stages on one device talk by the same rows: the send is followed by its receive in the same list and both
//   use a loopback channel, which buffers. Nothing else is special about them.
// - A reduction contributes its gradients when it is reached and does not wait there; the step of the same stage
//   and replica waits for it.
// - Versions count from the start of the step: 0 is what the step finds, a step action names the version it makes.

#include <string>
#include <string_view>
#include <vector>

#include "ir/stage_graph.h"
#include "wire/action.h"

namespace graphpipe::ir {

using Action = wire::ActionRow;
using wire::action_name;
using wire::ActionOp;
using wire::is_compute;
using wire::is_receive;
using wire::is_send;
using wire::Stream;

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
  bool operator==(const Schedule&) const = default;
};

/// The lane that an action of this kind occupies: transfers kCommunication, REDUCE and NORM kCollective, else kCompute.
constexpr Stream stream_of(ActionOp op) {
  if (is_send(op) || is_receive(op)) return Stream::kCommunication;
  if (op == ActionOp::kReduceGradient || op == ActionOp::kNorm) return Stream::kCollective;
  return Stream::kCompute;
}
constexpr bool is_backward_message(ActionOp op) {
  return op == ActionOp::kSendBackward || op == ActionOp::kReceiveBackward;
}

/// "<stage>[r<replica>]<OP>[<first>,<last>)" and then, where they differ from ActionRow's defaults, "e<edge>",
/// "p<peer replica>", "s<slot>", "v<version>", "c<stream>"; the stream's default is stream_of the op.
std::string print_action(const Action& action);
/// Errors: kMalformedFile.
Result<Action> parse_action(std::string_view text);

/// Three kinds of lines: "schedule <policy>", "slots <count of stage 0> ...", "device <id>: <actions>".
std::string print_schedule(const Schedule& schedule);
/// Errors: kMalformedFile with the line and the text found. Says nothing about whether the schedule is right.
Result<Schedule> parse_schedule(std::string_view text);

}  // namespace graphpipe::ir
