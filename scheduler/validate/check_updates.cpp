// Weight versions, and the updates that make them: one at the end of a synchronous step, several within an asynchronous
// one.

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "scheduler/validate/check_tables.h"
#include "support/digraph.h"
#include "support/union_find.h"

namespace graphpipe::scheduler::check {
namespace {

/// The weight versions of one replica at a point of its list.
struct VersionState {
  int latest = 0;
  std::set<int> live = {0}, published = {0};
  bool is_live(int version) const { return live.contains(version); }
};

std::string_view note_step(VersionState& state, const Action& action, bool copies) {
  if (action.version != state.latest + 1) return "does not make the next weight version";
  if (!copies) state.live.erase(state.latest);
  state.live.insert(++state.latest);
  return {};
}

std::string_view note_version(VersionState& state, const Action& action, int& item_version, bool copies) {
  switch (action.op) {
    case ActionOp::kForward:
      item_version = action.version;
      if (!state.is_live(action.version)) return "reads a weight version that is not there";
      return state.published.contains(action.version) ? "" : "reads a weight version that is not published";
    case ActionOp::kBackward:
    case ActionOp::kInputGradient:
    case ActionOp::kWeightGradient:
    case ActionOp::kRecompute:
      if (action.version != item_version) return "uses another weight version than its forward";
      return state.is_live(action.version) ? "" : "uses a weight version that was freed";
    case ActionOp::kStep:
      return note_step(state, action, copies);
    case ActionOp::kPublish:
      if (!state.is_live(action.version)) return "publishes a weight version that is not there";
      return state.published.insert(action.version).second ? "" : "publishes a weight version a second time";
    case ActionOp::kFreeVersion:
      if (action.version == state.latest) return "frees the newest weight version";
      return state.live.erase(action.version) > 0 ? "" : "frees a weight version that is not there";
    default:
      return {};
  }
}

/// How far the updates of one replica have come; samples before `reduced` and `stepped` are done.
struct UpdateState {
  int64_t reduced = 0, stepped = 0;
  std::vector<SampleRange> updates;
  bool reduces_ahead(SampleRange range) const { return reduced >= range.last; }
};

/// Whether one of the replica's items lies on both sides of `sample`.
bool cuts_item(const Tables& tables, const Action& action, int64_t sample) {
  const auto key = std::tuple(StageId(static_cast<size_t>(action.stage)), action.replica, sample);
  const auto after =
      std::lower_bound(tables.items.begin(), tables.items.end(), key, [](const CheckedItem& item, const auto& k) {
        return std::tuple(item.stage, item.replica, item.range.first) < k;
      });
  if (after == tables.items.begin()) return false;
  const CheckedItem& item = *(after - 1);
  return item.stage == std::get<0>(key) && item.replica == action.replica && item.range.last > sample;
}

std::string_view note_update(const Tables& tables, int group, UpdateState& state, const Action& action) {
  if (ir::is_compute(action.op)) {
    if (action.range.first < state.stepped) return "comes after the step of its stage";
    const bool is_late = ir::makes_weight_gradients(action.op) && action.range.first < state.reduced;
    return is_late ? "comes after the reduction of its stage" : "";
  }
  switch (action.op) {
    case ActionOp::kReduceGradient:
      if (group < 0) return "reduces a stage that has nothing to reduce";
      if (action.range.first < state.stepped) return "comes after the step of its stage";
      if (action.range.first < state.reduced) return "reduces a second time";
      if (action.range.first > state.reduced) return "leaves out samples that were not reduced";
      if (cuts_item(tables, action, action.range.last)) return "cuts an item in two";
      state.reduced = action.range.last;
      return {};
    case ActionOp::kNorm:
      return state.stepped > 0 ? "comes after the step of its stage" : "";
    case ActionOp::kStep:
      if (!tables.graph.stages[StageId(static_cast<size_t>(action.stage))].is_trained())
        return "steps a stage without trainable weights";
      if (action.range.first < state.stepped) return "steps a second time";
      if (action.range.first > state.stepped) return "leaves out samples that no step has applied";
      if (group >= 0 && !state.reduces_ahead(action.range)) return "comes before the reduction of its stage";
      if (cuts_item(tables, action, action.range.last)) return "cuts an item in two";
      state.stepped = action.range.last;
      state.updates.push_back(action.range);
      return {};
    default:
      return {};
  }
}

constexpr const char* kUpdateHint =
    "end every update with one reduction where there are copies, then one optimizer step";

/// The step that a replica lacks is expected at the end of its program.
Diagnostic missing_step(const Tables& tables, StageId stage, size_t replica, const UpdateState& state) {
  const auto& programs = tables.schedule.programs;
  const ir::DeviceId device = tables.graph.stages[stage].choice.devices[replica];
  const auto program =
      std::find_if(programs.begin(), programs.end(), [&](const auto& p) { return p.device == device; });
  const std::string what =
      text("stage ", stage, ", replica ", replica, " has no optimizer step for samples from ", state.stepped);
  if (program == programs.end()) return Diagnostic{.code = Code::kBadSchedule, .message = what, .hint = kUpdateHint};
  Action step;
  step.op = ActionOp::kStep;
  step.stage = static_cast<int32_t>(stage.index());
  step.replica = static_cast<int32_t>(replica);
  step.range = {state.stepped, tables.graph.batch.count};
  step.version = static_cast<int32_t>(state.updates.size()) + 1;
  const Place end{static_cast<int>(program - programs.begin()), static_cast<int>(program->actions.size())};
  return tables.missing(end, step, what, kUpdateHint);
}

/// The updates of every trained replica tile the step, and those of a group are the same.
Diagnostics check_tiles(const Tables& tables, const IdMap<StageId, int>& groups,
                        std::map<ReplicaKey, UpdateState>& states) {
  std::map<int, const UpdateState*> first_of;
  for (const StageId stage : tables.graph.stage_ids()) {
    if (!tables.graph.stages[stage].is_trained()) continue;
    for (size_t replica = 0; replica < tables.graph.stages[stage].choice.devices.size(); ++replica) {
      const UpdateState& state = states[{static_cast<int32_t>(stage.index()), static_cast<int32_t>(replica)}];
      const auto problem = [&, stage, replica](std::string_view what) {
        return Diagnostic{.code = Code::kBadSchedule,
                          .message = text("stage ", stage, ", replica ", replica, " ", what),
                          .hint = kUpdateHint};
      };
      if (state.stepped < tables.graph.batch.count) return {missing_step(tables, stage, replica, state)};
      if (groups[stage] < 0) continue;
      const UpdateState& other = *first_of.emplace(groups[stage], &state).first->second;
      if (other.updates != state.updates) return {problem("makes other updates than the copies of its weights")};
    }
  }
  return {};
}

/// Collectives in one order: contracted to one node per group and update, the lists make no cycle. A step or norm that
/// waits for results can then wait for nothing that waits for it, even where reductions block.
Diagnostics check_collective_order(const Tables& tables, const IdMap<StageId, int>& groups) {
  using Node = std::pair<int, int64_t>;
  std::map<Node, Place> first_of;
  std::set<std::pair<Node, Node>> follows;
  for (size_t p = 0; p < tables.schedule.programs.size(); ++p) {
    std::optional<Node> previous;
    for (size_t i = 0; i < tables.schedule.programs[p].actions.size(); ++i) {
      const Action& action = tables.schedule.programs[p].actions[i];
      if (action.op != ActionOp::kReduceGradient) continue;
      const Node node{groups[StageId(static_cast<size_t>(action.stage))], action.range.first};
      first_of.try_emplace(node, Place{static_cast<int>(p), static_cast<int>(i)});
      if (previous && *previous != node) follows.emplace(*previous, node);
      previous = node;
    }
  }
  std::map<Node, uint32_t> number;
  std::vector<Place> places;
  for (const auto& [node, place] : first_of) {
    number[node] = static_cast<uint32_t>(places.size());
    places.push_back(place);
  }
  EdgeList edges;
  for (const auto& [from, to] : follows) edges.emplace_back(number.at(from), number.at(to));
  const auto found = first_on_cycle(places.size(), edges);
  if (!found) return {};
  return {tables.problem(places[*found], "stands in another order on another device",
                         "list reductions in one order on all devices")};
}

}  // namespace

Diagnostics check_versions(const Tables& tables) {
  std::map<ReplicaKey, VersionState> states;
  std::vector<int> item_versions(tables.items.size(), 0);
  constexpr const char* kHint = "name a version between its step and its release";
  for (size_t p = 0; p < tables.schedule.programs.size(); ++p) {
    const ir::Program& program = tables.schedule.programs[p];
    const std::vector<bool> copies = ir::copying_steps(program);
    std::map<ReplicaKey, Place> last;
    for (size_t i = 0; i < program.actions.size(); ++i) {
      const Action& action = program.actions[i];
      const int item = tables.item_of[p][i];
      int none = 0;
      int& version = item >= 0 ? item_versions[static_cast<size_t>(item)] : none;
      const Place place{static_cast<int>(p), static_cast<int>(i)};
      last[replica_key(action)] = place;
      const std::string_view what = note_version(states[replica_key(action)], action, version, copies[i]);
      if (!what.empty()) return {tables.problem(place, what, kHint)};
    }
    for (const auto& [replica, place] : last)
      if (states[replica].live.size() > 1)
        return {tables.problem(
            place,
            text("ends the list of its stage while weight version ", *states[replica].live.begin(), " was never freed"),
            "free every version but the newest after its last use")};
  }
  return {};
}

IdMap<StageId, int> stages_reduced_together(const StageGraph& graph) {
  UnionFind<> together(graph.stages.size());
  std::vector<bool> reduces(graph.stages.size());
  for (const StageId stage : graph.stage_ids())
    reduces[stage.index()] = graph.stages[stage].is_trained() && graph.stages[stage].choice.devices.size() > 1;
  for (const ir::SharedWeights& shared : graph.shared) {
    std::optional<StageId> first;
    for (const StageId stage : shared.stages) {
      if (!graph.stages[stage].is_trained()) continue;
      reduces[stage.index()] = true;
      if (first) together.join(static_cast<uint32_t>(first->index()), static_cast<uint32_t>(stage.index()));
      else first = stage;
    }
  }
  IdMap<StageId, int> lowest(graph.stages.size(), -1);
  // A set goes by its smallest number.
  for (const StageId stage : graph.stage_ids())
    if (reduces[stage.index()]) lowest[stage] = static_cast<int>(together.find(static_cast<uint32_t>(stage.index())));
  return lowest;
}

Diagnostics check_step(const Tables& tables) {
  const IdMap<StageId, int> groups = stages_reduced_together(tables.graph);
  std::map<ReplicaKey, UpdateState> states;
  Diagnostics problems;
  for_each_action(tables, [&](Place place, const Action& action) {
    if (!problems.empty()) return;
    const int group = groups[StageId(static_cast<size_t>(action.stage))];
    const std::string_view what = note_update(tables, group, states[replica_key(action)], action);
    if (!what.empty())
      problems.push_back(tables.problem(place, what, "end an update with one reduction, then one optimizer step"));
  });
  if (!problems.empty()) return problems;
  if (problems = check_tiles(tables, groups, states); !problems.empty()) return problems;
  return check_collective_order(tables, groups);
}

}  // namespace graphpipe::scheduler::check
