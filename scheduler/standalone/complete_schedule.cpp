// Checks a bare schedule and completes it.

#include <algorithm>

#include "scheduler/lowering/assign_slots.h"
#include "scheduler/lowering/insert_transfers.h"
#include "scheduler/standalone/infer_stages.h"

namespace graphpipe::scheduler {
namespace {

template <typename Matches>
bool any_action(const Schedule& schedule, Matches matches) {
  return std::any_of(schedule.programs.begin(), schedule.programs.end(), [&](const ir::Program& program) {
    return std::any_of(program.actions.begin(), program.actions.end(), matches);
  });
}

/// A schedule with added actions, and per action the action of the given schedule that it stands for or follows from.
struct Extended {
  Schedule schedule;
  std::vector<std::vector<int>> origin;
};

/// Files with communication omit messages between two stages of one device. These are added behind the action, or the
/// overlapped pair, that makes them.
class LocalMessages {
 public:
  LocalMessages(const StageGraph& graph, const Schedule& given) : graph_(graph), given_(given) {
    named_.resize(graph.edges.size(), false);
    any_action(given, [&](const Action& action) {
      if (ir::is_message(action.op) && action.edge >= 0 && static_cast<size_t>(action.edge) < named_.size())
        named_[ir::EdgeId(static_cast<size_t>(action.edge))] = true;
      return false;
    });
  }

  Extended run() {
    out_.schedule = given_;
    for (ir::Program& program : out_.schedule.programs) {
      const std::vector<Action> actions = std::move(program.actions);
      program.actions.clear();
      out_.origin.emplace_back();
      for (size_t i = 0; i < actions.size(); ++i) {
        append(program, actions[i], i);
        if (actions[i].overlaps_next) continue;
        if (i > 0 && actions[i - 1].overlaps_next) add_messages(program, actions[i - 1], i);
        add_messages(program, actions[i], i);
      }
    }
    return std::move(out_);
  }

 private:
  void append(ir::Program& program, const Action& action, size_t origin) {
    program.actions.push_back(action);
    out_.origin.back().push_back(static_cast<int>(origin));
  }

  void add_messages(ir::Program& program, const Action& made_by, size_t origin) {
    const bool forward = made_by.op == ActionOp::kForward;
    if (!forward && made_by.op != ActionOp::kBackward && made_by.op != ActionOp::kInputGradient) return;
    // A chain: the edge below stage s has its number.
    const auto stage = static_cast<size_t>(made_by.stage);
    if ((!forward && stage == 0) || stage - (forward ? 0 : 1) >= named_.size()) return;
    const ir::EdgeId id(stage - (forward ? 0 : 1));
    if (named_[id] || (!forward && !graph_.edges[id].carries_gradient())) return;
    const StageId to(forward ? stage + 1 : stage - 1);
    const auto& devices = graph_.stages[to].choice.devices;
    const auto replica = static_cast<size_t>(made_by.replica);
    if (replica >= devices.size() || devices[replica] != program.device) return;
    Action message = made_by;
    message.overlaps_next = false;
    message.op = forward ? ActionOp::kSendForward : ActionOp::kSendBackward;
    message.stream = ir::stream_of(message.op);
    message.edge = static_cast<int32_t>(id.index());
    message.peer_replica = made_by.replica;
    append(program, message, origin);
    message.op = forward ? ActionOp::kReceiveForward : ActionOp::kReceiveBackward;
    message.stage = static_cast<int32_t>(to.index());
    append(program, message, origin);
  }

  const StageGraph& graph_;
  const Schedule& given_;
  IdMap<ir::EdgeId, bool> named_;
  Extended out_;
};

void give_slots(const StageGraph& graph, Schedule& schedule) {
  const ItemTable items(graph, schedule);
  ItemLists lists;
  for (const ir::Program& program : schedule.programs) {
    std::vector<ItemIndex>& list = lists.emplace_back();
    for (const Action& action : program.actions) list.push_back(ir::is_of_item(action.op) ? items.item_of(action) : -1);
  }
  assign_slots(items, lists, schedule);
}

size_t device_count(const Schedule& schedule) {
  size_t count = 1;
  for (const ir::Program& program : schedule.programs) count = std::max(count, program.device.index() + 1);
  return count;
}

/// For lists with more than compute actions: completes them, then checks all of them.
std::optional<ScheduleProblem> complete_actions(const Schedule& given, const VersionClaims& claims,
                                                WholeSchedule& whole) {
  Extended extended;
  const bool bare = given.slots.empty();
  if (bare) {
    extended = LocalMessages(whole.graph, given).run();
    give_slots(whole.graph, extended.schedule);
  } else {
    extended.schedule = given;
  }
  whole.schedule = std::move(extended.schedule);
  const bool steps = any_action(given, [](const Action& a) { return a.op == ActionOp::kStep; });
  std::optional<ScheduleProblem> problem =
      first_problem(whole.graph, whole.cluster, whole.schedule,
                    {.memory = {}, .check_memory = false, .synchronous = steps, .claims = claims});
  if (problem && bare && problem->program >= 0 && problem->position >= 0) {
    const auto program = static_cast<size_t>(problem->program), position = static_cast<size_t>(problem->position);
    const std::vector<int>& origin = extended.origin[program];
    problem->position =
        position < origin.size() ? origin[position] : static_cast<int>(given.programs[program].actions.size());
  }
  return problem;
}

}  // namespace

Verdict complete_schedule(const Schedule& given, EdgeNumbers numbers, const PassCosts& costs,
                          const VersionClaims& claims) {
  InferredStages inferred = infer_stages(given, numbers);
  if (inferred.problem) return {.whole = std::nullopt, .problem = std::move(inferred.problem)};
  WholeSchedule whole{.graph = std::move(inferred.graph),
                      .cluster = standalone_cluster(static_cast<int>(device_count(given)), costs.latency),
                      .schedule = {}};
  set_costs(whole.graph, costs);
  const bool only_compute = !any_action(given, [](const Action& action) { return !ir::is_compute(action.op); });
  if (!only_compute) {
    if (auto problem = complete_actions(given, claims, whole))
      return {.whole = std::nullopt, .problem = std::move(problem)};
    return {.whole = std::move(whole), .problem = std::nullopt};
  }
  if (auto problem = first_compute_problem(whole.graph, whole.cluster, given))
    return {.whole = std::nullopt, .problem = std::move(problem)};
  Schedule compute = given;
  // The lowering adds recomputation again.
  for (ir::Program& program : compute.programs)
    std::erase_if(program.actions, [](const Action& action) { return action.op == ActionOp::kRecompute; });
  const Result<Schedule> lowered = insert_transfers(whole.graph, std::move(compute), {.finish_step = false});
  if (!lowered)
    return {
        .whole = std::nullopt,
        .problem = ScheduleProblem{-1, -1, lowered.problems().front().message, lowered.problems().front().hint, {}}};
  whole.schedule = *lowered;
  return {.whole = std::move(whole), .problem = std::nullopt};
}

}  // namespace graphpipe::scheduler
