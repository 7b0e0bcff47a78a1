// Completeness: forwards tile the samples of each stage; every item has its backward once and in order.

#include <algorithm>

#include "scheduler/validate/check_tables.h"

namespace graphpipe::scheduler::check {
namespace {

constexpr const char* kOnce = "list every forward and every backward of an item exactly once, in order";

void add_items(Tables& tables) {
  for_each_action(tables, [&](Place place, const Action& action) {
    if (action.op != ActionOp::kForward) return;
    tables.items.push_back({.stage = StageId(static_cast<size_t>(action.stage)),
                            .replica = action.replica,
                            .range = action.range,
                            .program = place.program,
                            .forward = place.position});
  });
  std::sort(tables.items.begin(), tables.items.end(), [](const CheckedItem& a, const CheckedItem& b) {
    return std::tuple(a.stage, a.range.first, a.replica, a.forward) <
           std::tuple(b.stage, b.range.first, b.replica, b.forward);
  });
}

/// The replica of a stage with the fewest forwards: the one that a missing forward belongs to, most likely.
int replica_with_fewest(const Tables& tables, StageId stage) {
  std::vector<int64_t> counts(tables.graph.stages[stage].choice.devices.size(), 0);
  for (const CheckedItem& item : tables.items)
    if (item.stage == stage) counts[static_cast<size_t>(item.replica)] += item.range.size();
  return static_cast<int>(std::min_element(counts.begin(), counts.end()) - counts.begin());
}

/// A forward is expected behind the one before it, or at the front.
Diagnostic missing_forward(const Tables& tables, StageId stage, SampleRange range) {
  const int replica = replica_with_fewest(tables, stage);
  const std::string what = text("stage ", stage, " has no forward of sample ", range.first);
  const ir::DeviceId device = tables.graph.stages[stage].choice.devices[static_cast<size_t>(replica)];
  const auto& programs = tables.schedule.programs;
  const auto program =
      std::find_if(programs.begin(), programs.end(), [&](const auto& p) { return p.device == device; });
  if (program == programs.end()) return Diagnostic{.code = Code::kBadSchedule, .message = what, .hint = kOnce};
  Place expected{static_cast<int>(program - programs.begin()), 0};
  for (const CheckedItem& item : tables.items)
    if (item.stage == stage && item.replica == replica && item.range.first < range.first)
      expected.position = std::max(expected.position, item.forward + 1);
  Action forward;
  forward.stage = static_cast<int32_t>(stage.index());
  forward.replica = replica;
  forward.range = range;
  return tables.missing(expected, forward, what, kOnce);
}

/// Items are ascending by (stage, first sample) here: each must begin where the one before it ended.
Diagnostics check_tiling(const Tables& tables) {
  Diagnostics problems;
  size_t next = 0;
  for (const StageId stage : tables.graph.stage_ids()) {
    int64_t done = 0, next_there = tables.graph.batch.count;
    for (; next < tables.items.size() && tables.items[next].stage == stage; ++next) {
      const CheckedItem& item = tables.items[next];
      if (item.range.first < done)
        return {tables.problem(item.program, item.forward, "runs samples that another forward has run", kOnce)};
      if (item.range.first > done) {
        next_there = item.range.first;
        break;
      }
      done = item.range.last;
    }
    while (next < tables.items.size() && tables.items[next].stage == stage) ++next;
    if (done < tables.graph.batch.count && problems.size() < kMaxProblems) {
      const int64_t size = std::max<int64_t>(1, tables.graph.stages[stage].choice.micro_batch.count);
      problems.push_back(missing_forward(tables, stage, {done, std::min(next_there, done + size)}));
    }
  }
  return problems;
}

int find_item(const Tables& tables, const Action& action) {
  const auto key = [](const CheckedItem& item) { return std::tuple(item.stage, item.replica, item.range.first); };
  const auto wanted = std::tuple(StageId(static_cast<size_t>(action.stage)), action.replica, action.range.first);
  const auto after = std::upper_bound(tables.items.begin(), tables.items.end(), wanted,
                                      [&](const auto& k, const CheckedItem& item) { return k < key(item); });
  if (after == tables.items.begin()) return -1;
  const CheckedItem& item = *(after - 1);
  const bool inside =
      item.stage == std::get<0>(wanted) && item.replica == action.replica && item.range.last >= action.range.last;
  return inside ? static_cast<int>(after - 1 - tables.items.begin()) : -1;
}

/// The first thing that is wrong with this action of the item, given the actions before it in the list.
std::string_view note_action(const Tables& tables, CheckedItem& item, const Action& action, int position) {
  const ir::Stage& stage = tables.graph.stages[item.stage];
  if (action.op == ActionOp::kForward) return {};
  if (action.range != item.range) return "has other samples than its forward";
  if (!ir::is_compute(action.op)) return {};
  if (!stage.has_backward) return "is a backward of a stage that has none";
  if (item.forward > position) return "comes before its forward";
  switch (action.op) {
    case ActionOp::kRecompute:
      if (item.recompute >= 0) return "recomputes a second time";
      if (item.backward >= 0) return "recomputes after the backward";
      item.recompute = position;
      return {};
    case ActionOp::kBackward:
    case ActionOp::kInputGradient:
      if (item.backward >= 0) return "runs a backward a second time";
      if (stage.choice.recompute && item.recompute < 0) return "needs a recompute before it";
      item.backward = position;
      if (action.op == ActionOp::kBackward) item.weight_gradient = position;
      return {};
    default:
      if (item.backward < 0) return "comes before its input gradient";
      if (item.weight_gradient >= 0) return "runs a weight gradient a second time";
      item.weight_gradient = position;
      return {};
  }
}

/// A part of the backward is expected where those of the replica's other items suggest it: next to its neighbour's, in
/// the order of samples or in reverse; without others behind `earliest`.
Diagnostic missing_like_others(const Tables& tables, const CheckedItem& item, int CheckedItem::*part, ActionOp op,
                               int earliest, std::string_view name) {
  const CheckedItem *below = nullptr, *above = nullptr, *last = nullptr;
  bool reversed = false;
  for (const CheckedItem& other : tables.items) {
    if (other.stage != item.stage || other.replica != item.replica || other.*part < 0) continue;
    if (other.range.first < item.range.first) below = &other;
    else if (above == nullptr) above = &other;
    if (last != nullptr) reversed = other.*part < last->*part;
    last = &other;
  }
  const CheckedItem* const before = reversed ? above : below;
  const CheckedItem* const after = reversed ? below : above;
  int place = before != nullptr ? before->*part + 1 : after != nullptr ? after->*part : 0;
  Action action = tables.action({item.program, item.forward});
  action.overlaps_next = false;
  action.op = op;
  const auto& actions = tables.schedule.programs[static_cast<size_t>(item.program)].actions;
  // What it makes is sent only after it.
  const auto& items = tables.item_of[static_cast<size_t>(item.program)];
  for (size_t i = actions.size(); i-- > 0;)
    if (actions[i].op == ActionOp::kSendBackward && items[i] == &item - tables.items.data())
      place = static_cast<int>(i);
  if (op == ActionOp::kBackward && last != nullptr) action.op = actions[static_cast<size_t>(last->backward)].op;
  return tables.missing({item.program, std::max(place, earliest + 1)}, action,
                        text("stage ", item.stage, " has no ", name, " of sample ", item.range.first), kOnce);
}

Diagnostic missing_backward(const Tables& tables, const CheckedItem& item) {
  return missing_like_others(tables, item, &CheckedItem::backward, ActionOp::kBackward, item.forward, "backward");
}

Diagnostic missing_weight_gradient(const Tables& tables, const CheckedItem& item) {
  return missing_like_others(tables, item, &CheckedItem::weight_gradient, ActionOp::kWeightGradient, item.backward,
                             "weight gradient");
}

}  // namespace

Diagnostics check_items(Tables& tables) {
  add_items(tables);
  if (Diagnostics problems = check_tiling(tables); !problems.empty()) return problems;
  std::sort(tables.items.begin(), tables.items.end(), [](const CheckedItem& a, const CheckedItem& b) {
    return std::tuple(a.stage, a.replica, a.range.first) < std::tuple(b.stage, b.replica, b.range.first);
  });
  for (const ir::Program& program : tables.schedule.programs) tables.item_of.emplace_back(program.actions.size(), -1);
  Diagnostics problems;
  for_each_action(tables, [&](Place place, const Action& action) {
    if (!problems.empty() || !ir::is_of_item(action.op)) return;
    const int index = find_item(tables, action);
    if (index < 0) {
      problems.push_back(tables.problem(place, "belongs to no forward of its stage and replica", kOnce));
      return;
    }
    tables.item_of[static_cast<size_t>(place.program)][static_cast<size_t>(place.position)] = index;
    if (ir::is_message(action.op) || action.op == ActionOp::kSlice) return;
    const std::string_view what = note_action(tables, tables.items[static_cast<size_t>(index)], action, place.position);
    if (!what.empty()) problems.push_back(tables.problem(place, what, kOnce));
  });
  if (!problems.empty()) return problems;
  for (const CheckedItem& item : tables.items) {
    if (!tables.graph.stages[item.stage].has_backward) continue;
    if (item.backward < 0) return {missing_backward(tables, item)};
    if (item.weight_gradient < 0) return {missing_weight_gradient(tables, item)};
  }
  return {};
}

}  // namespace graphpipe::scheduler::check
