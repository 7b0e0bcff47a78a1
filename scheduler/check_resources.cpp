// Ring slots, weight versions, and what ends the step.

#include <algorithm>
#include <map>
#include <set>

#include "scheduler/check_tables.h"
#include "scheduler/insert_transfers.h"

namespace graphpipe::scheduler::check {
namespace {

using ReplicaKey = std::pair<int32_t, int32_t>;  // stage, replica

bool trains(const ir::Stage& stage) { return stage.has_backward && stage.trainable_weight_bytes > Bytes(0); }

/// Positions of the last action of every item.
std::vector<int> last_actions(const Tables& tables) {
  std::vector<int> last(tables.items.size(), -1);
  each_row(tables, [&](Place place, const Action&) {
    const int item = tables.item_of[static_cast<size_t>(place.program)][static_cast<size_t>(place.position)];
    if (item >= 0) last[static_cast<size_t>(item)] = place.position;
  });
  return last;
}

/// Where the weights of one replica stand while its list is walked.
struct VersionState {
  int latest = 0;
  std::set<int> freed;
  bool is_live(int version) const { return version >= 0 && version <= latest && !freed.contains(version); }
};

std::string_view note_version(VersionState& state, const Action& action, int& item_version) {
  switch (action.op) {
    case ActionOp::kForward:
      item_version = action.version;
      return state.is_live(action.version) ? "" : "reads a weight version that is not there";
    case ActionOp::kBackward:
    case ActionOp::kInputGradient:
    case ActionOp::kWeightGradient:
    case ActionOp::kRecompute:
      if (action.version != item_version) return "uses another weight version than its forward";
      return state.is_live(action.version) ? "" : "uses a weight version that was freed";
    case ActionOp::kStep:
      if (action.version != state.latest + 1) return "does not make the next weight version";
      ++state.latest;
      return {};
    case ActionOp::kPublish:
      return state.is_live(action.version) ? "" : "publishes a weight version that is not there";
    case ActionOp::kFreeVersion:
      if (!state.is_live(action.version)) return "frees a weight version that is not there";
      state.freed.insert(action.version);
      return {};
    default:
      return {};
  }
}

}  // namespace

Diagnostics check_slots(const Tables& tables) {
  const std::vector<int> last = last_actions(tables);
  /// Stage, replica, slot: the item in it, or none.
  std::map<std::tuple<int32_t, int32_t, int32_t>, std::optional<int>> slots;
  std::vector<int> slot_of(tables.items.size(), -1);
  Diagnostics problems;
  each_row(tables, [&](Place place, const Action& action) {
    const int item = tables.item_of[static_cast<size_t>(place.program)][static_cast<size_t>(place.position)];
    if (item < 0 || !problems.empty()) return;
    if (action.slot < 0) {
      problems.push_back(tables.problem(place, "has no ring slot", "give every action of an item its slot"));
      return;
    }
    std::optional<int>& occupant = slots[{action.stage, action.replica, action.slot}];
    int& own = slot_of[static_cast<size_t>(item)];
    if (own >= 0 && own != action.slot)
      problems.push_back(
          tables.problem(place, "uses another slot than its item's first action", "keep an item in one slot"));
    else if (occupant && *occupant != item)
      problems.push_back(
          tables.problem(place, "uses a slot that another item still needs", "use more slots, or receive later"));
    own = action.slot;
    occupant = item;
    if (last[static_cast<size_t>(item)] == place.position) occupant.reset();
  });
  return problems;
}

Diagnostics check_versions(const Tables& tables) {
  std::map<ReplicaKey, VersionState> states;
  std::vector<int> item_versions(tables.items.size(), 0);
  Diagnostics problems;
  each_row(tables, [&](Place place, const Action& action) {
    if (!problems.empty()) return;
    const int item = tables.item_of[static_cast<size_t>(place.program)][static_cast<size_t>(place.position)];
    int none = 0;
    int& version = item >= 0 ? item_versions[static_cast<size_t>(item)] : none;
    const std::string_view what = note_version(states[{action.stage, action.replica}], action, version);
    if (!what.empty())
      problems.push_back(tables.problem(place, what, "name a version between its step and its release"));
  });
  return problems;
}

namespace {

/// How far the end of the step has come on one replica.
struct StepState {
  int reductions = 0;
  int steps = 0;
};

std::string_view note_step(const Tables& tables, const IdMap<StageId, int>& groups, StepState& state,
                           const Action& action) {
  const StageId stage(static_cast<size_t>(action.stage));
  const bool backward = action.op == ActionOp::kBackward || action.op == ActionOp::kWeightGradient;
  if (backward && state.reductions > 0) return "comes after the reduction of its stage";
  if (ir::is_compute(action.op) && state.steps > 0) return "comes after the step of its stage";
  if (action.op == ActionOp::kReduceGradient) {
    if (groups[stage] < 0) return "reduces a stage that has nothing to reduce";
    if (++state.reductions > 1) return "reduces a second time";
    if (state.steps > 0) return "comes after the step of its stage";
  }
  if (action.op == ActionOp::kNorm && state.steps > 0) return "comes after the step of its stage";
  if (action.op == ActionOp::kStep) {
    if (!trains(tables.graph.stages[stage])) return "steps a stage without trainable weights";
    if (groups[stage] >= 0 && state.reductions == 0) return "comes before the reduction of its stage";
    if (++state.steps > 1) return "steps a second time";
  }
  return {};
}

/// Collectives in one order: contracted to one node per group, the lists make no circle. A step or norm that waits for
/// results can then wait for nothing that waits for it, even where reductions block.
Diagnostics check_collective_order(const Tables& tables, const IdMap<StageId, int>& groups) {
  std::map<int, std::set<int>> next;
  std::map<int, Place> seen;
  for (size_t p = 0; p < tables.schedule.programs.size(); ++p) {
    int previous = -1;
    for (size_t i = 0; i < tables.schedule.programs[p].actions.size(); ++i) {
      const Action& action = tables.schedule.programs[p].actions[i];
      if (action.op != ActionOp::kReduceGradient) continue;
      const int group = groups[StageId(static_cast<size_t>(action.stage))];
      seen.try_emplace(group, Place{static_cast<int>(p), static_cast<int>(i)});
      if (previous >= 0 && previous != group) next[previous].insert(group);
      previous = group;
    }
  }
  // Takes groups that nothing left comes before, until none is left.
  std::map<int, int> before;
  for (const auto& [group, place] : seen) before[group];
  for (const auto& [group, followers] : next)
    for (const int follower : followers) ++before[follower];
  for (bool progress = true; progress;) {
    progress = false;
    for (auto entry = before.begin(); entry != before.end(); ++entry) {
      if (entry->second > 0) continue;
      for (const int follower : next[entry->first]) --before[follower];
      before.erase(entry);
      progress = true;
      break;
    }
  }
  if (before.empty()) return {};
  return {tables.problem(seen.at(before.begin()->first), "stands in another order on another device",
                         "list reductions in one order on all devices")};
}

}  // namespace

Diagnostics check_step(const Tables& tables) {
  const IdMap<StageId, int> groups = reduction_groups(tables.graph);
  std::map<ReplicaKey, StepState> states;
  Diagnostics problems;
  each_row(tables, [&](Place place, const Action& action) {
    if (!problems.empty()) return;
    const std::string_view what = note_step(tables, groups, states[{action.stage, action.replica}], action);
    if (!what.empty())
      problems.push_back(tables.problem(place, what, "end the step with one reduction, then one optimizer step"));
  });
  if (!problems.empty()) return problems;
  for (const StageId stage : tables.graph.stage_ids()) {
    if (!trains(tables.graph.stages[stage])) continue;
    for (size_t replica = 0; replica < tables.graph.stages[stage].choice.devices.size(); ++replica) {
      const StepState& state = states[{static_cast<int32_t>(stage.index()), static_cast<int32_t>(replica)}];
      if (state.steps == 0 || (groups[stage] >= 0 && state.reductions == 0))
        return {Diagnostic{.code = Code::kBadSchedule,
                           .message = text("stage ", stage, ", replica ", replica, " has no ",
                                           state.steps == 0 ? "optimizer step" : "reduction"),
                           .hint = "end the step with one reduction where there are copies, then one optimizer step"}};
    }
  }
  return check_collective_order(tables, groups);
}

}  // namespace graphpipe::scheduler::check
