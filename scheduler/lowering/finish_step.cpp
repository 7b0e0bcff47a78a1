#include "scheduler/lowering/finish_step.h"

#include <algorithm>
#include <map>
#include <utility>

#include "scheduler/lowering/insert_transfers.h"
#include "scheduler/lowering/trained_replicas.h"
#include "scheduler/lowering/updates.h"

namespace graphpipe::scheduler {
namespace {

bool is_transfer(ActionOp op) { return ir::is_message(op) || op == ActionOp::kSlice; }

/// Actions of the program up to the last one that its gradients need, and up to what that one sends.
size_t end_of_compute(const ir::Program& program, StageId stage, int replica) {
  const std::vector<Action>& actions = program.actions;
  size_t end = actions.size();
  const auto is_own = [&](const Action& action) {
    return ir::is_compute(action.op) && action.stage == static_cast<int32_t>(stage.index()) &&
           action.replica == replica;
  };
  while (end > 0 && !is_own(actions[end - 1])) --end;
  while (end < actions.size() && is_transfer(actions[end].op)) ++end;
  return end;
}

Action step_action(const StageGraph& graph, ActionOp op, const TrainedReplica& of) {
  Action action;
  action.op = op;
  action.stream = ir::stream_of(op);
  action.stage = static_cast<int32_t>(of.stage.index());
  action.replica = of.replica;
  action.range = {0, graph.batch.count};
  if (op == ActionOp::kStep) action.version = 1;
  return action;
}

/// What is reduced on a device, each with the number of actions before it; ascending. Groups come in the order of
/// `turn_of`.
std::vector<std::pair<size_t, const TrainedReplica*>> place_reductions(const ir::Program& program,
                                                                       const std::vector<TrainedReplica>& trained,
                                                                       const std::map<int, size_t>& turn_of) {
  std::map<size_t, std::vector<const TrainedReplica*>> turns;
  for (const TrainedReplica& own : trained)
    if (const auto turn = turn_of.find(own.group); turn != turn_of.end()) turns[turn->second].push_back(&own);
  std::vector<std::pair<size_t, const TrainedReplica*>> places;
  size_t earliest = 0;
  for (const auto& [turn, members] : turns) {
    const auto before = static_cast<std::ptrdiff_t>(places.size());
    for (const TrainedReplica* own : members)
      places.push_back({std::max(earliest, end_of_compute(program, own->stage, own->replica)), own});
    std::stable_sort(places.begin() + before, places.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    earliest = places.back().first;
  }
  return places;
}

void finish_program(const StageGraph& graph, const std::vector<TrainedReplica>& trained,
                    const std::map<int, size_t>& turn_of, bool norm, ir::Program& program) {
  const auto places = place_reductions(program, trained, turn_of);
  auto next = places.begin();
  std::vector<Action> actions;
  for (size_t i = 0; i < program.actions.size(); ++i) {
    for (; next != places.end() && next->first == i; ++next)
      actions.push_back(step_action(graph, ActionOp::kReduceGradient, *next->second));
    actions.push_back(program.actions[i]);
  }
  for (const TrainedReplica& own : trained) actions.push_back(step_action(graph, ActionOp::kFlush, own));
  for (; next != places.end(); ++next) actions.push_back(step_action(graph, ActionOp::kReduceGradient, *next->second));
  if (norm && !trained.empty()) actions.push_back(step_action(graph, ActionOp::kNorm, trained.front()));
  // Steps follow the reductions that they wait for.
  for (const TrainedReplica& own : trained)
    if (own.group < 0) actions.push_back(step_action(graph, ActionOp::kStep, own));
  for (const auto& [end, own] : places) actions.push_back(step_action(graph, ActionOp::kStep, *own));
  program.actions = std::move(actions);
}

}  // namespace

void finish_step(const StageGraph& graph, const std::vector<int>& groups_done, bool norm, Schedule& schedule) {
  const auto trained = trained_replicas(graph);
  std::map<int, size_t> turn_of;
  for (const int group : groups_done) turn_of.emplace(group, turn_of.size());
  for (ir::Program& program : schedule.programs)
    if (const auto own = trained.find(program.device); own != trained.end())
      finish_program(graph, own->second, turn_of, norm, program);
}

}  // namespace graphpipe::scheduler
