#include "scheduler/action_problem.h"

#include <algorithm>

#include "support/exact_integer.h"

namespace graphpipe::scheduler {
namespace {

/// Slices and concatenations work at either end of an edge.
std::string_view boundary_problem(const ir::StageEdge& edge, const Action& a, StageId stage) {
  if (edge.from != stage && edge.to != stage) return "names an edge of other stages";
  const bool of_gradient = stage == (a.op == ActionOp::kSlice ? edge.to : edge.from);
  return of_gradient && !edge.carries_gradient() ? "names an edge that carries no gradient" : "";
}

}  // namespace

std::string_view action_problem(const StageGraph& graph, const Schedule& schedule, ir::DeviceId device,
                                const Action& a) {
  if (static_cast<int>(a.op) >= wire::kActionOpCount) return "is of an unknown kind";
  if (a.stage < 0 || static_cast<size_t>(a.stage) >= graph.stages.size()) return "names a stage that does not exist";
  const ir::StageChoice& choice = graph.stages[StageId(static_cast<size_t>(a.stage))].choice;
  if (a.replica < 0 || static_cast<size_t>(a.replica) >= choice.devices.size())
    return "names a replica that does not exist";
  if (choice.devices[static_cast<size_t>(a.replica)] != device) return "belongs on another device";
  if (a.range.first < 0 || a.range.empty() || a.range.last > graph.batch.count)
    return "has a range outside the samples of the step";
  const StageId stage(static_cast<size_t>(a.stage));
  if (a.slot < -1 || (a.slot >= 0 && (stage.index() >= schedule.slots.size() || a.slot >= schedule.slots[stage])))
    return "names a slot that its stage does not have";
  const bool message = ir::is_message(a.op);
  if (!message && a.op != ActionOp::kSlice && a.op != ActionOp::kConcatenate) return {};
  if (a.edge < 0 || static_cast<size_t>(a.edge) >= graph.edges.size()) return "names an edge that does not exist";
  const ir::StageEdge& edge = graph.edges[ir::EdgeId(static_cast<size_t>(a.edge))];
  if (!message) return boundary_problem(edge, a, stage);
  const bool at_producer = a.op == ActionOp::kSendForward || a.op == ActionOp::kReceiveBackward;
  if ((at_producer ? edge.from : edge.to) != stage) return "names an edge of other stages";
  const ir::Stage& other = graph.stages[at_producer ? edge.to : edge.from];
  if (a.peer_replica < 0 || static_cast<size_t>(a.peer_replica) >= other.choice.devices.size())
    return "names a peer replica that does not exist";
  if (ir::is_backward_message(a.op) && !edge.carries_gradient()) return "names an edge that carries no gradient";
  return {};
}

std::string_view overlap_problem(const ir::Program& program, size_t position) {
  const Action& action = program.actions[position];
  if (!action.overlaps_next) return {};
  if (action.op != ActionOp::kForward || position + 1 == program.actions.size())
    return "overlaps the next action without being a forward before a backward";
  const Action& next = program.actions[position + 1];
  if (next.op != ActionOp::kBackward && next.op != ActionOp::kInputGradient)
    return "overlaps the next action, which is no backward";
  return intersect(action.range, next.range).empty() ? "" : "overlaps a backward of the same samples, which needs it";
}

bool has_right_starts(const Schedule& schedule) {
  return (schedule.starts.empty() || schedule.starts.size() == schedule.programs.size()) &&
         std::all_of(schedule.starts.begin(), schedule.starts.end(),
                     [](Ticks start) { return start >= Ticks(0) && start <= Ticks(kMaxExactInteger); });
}

std::string place_text(const Schedule& schedule, size_t program, size_t position) {
  return text("device ", schedule.programs[program].device, ", action ", position, ": ",
              ir::print_action(schedule.programs[program].actions[position]));
}

Diagnostic schedule_problem(const Schedule& schedule, size_t program, size_t position, std::string_view what,
                            std::string hint) {
  return Diagnostic{.code = Code::kBadSchedule,
                    .message = text(place_text(schedule, program, position), " ", what),
                    .hint = std::move(hint)};
}

}  // namespace graphpipe::scheduler
