#include "scheduler/memory/program_items.h"

#include <iterator>

namespace graphpipe::scheduler {

std::vector<bool> item_ends(const std::vector<Action>& actions) {
  std::vector<bool> ends(actions.size(), false);
  std::map<SlotKey, ActionOp> following;
  for (size_t i = actions.size(); i-- > 0;) {
    const Action& action = actions[i];
    if (!ir::is_of_item(action.op)) continue;
    const auto next = following.find(slot_key(action));
    const bool prepares = action.op == ActionOp::kAllocate || action.op == ActionOp::kReceiveForward ||
                          action.op == ActionOp::kConcatenate;
    ends[i] = next == following.end() ||
              (!prepares && (next->second == ActionOp::kAllocate || next->second == ActionOp::kReceiveForward ||
                             next->second == ActionOp::kForward));
    following[slot_key(action)] = action.op;
  }
  return ends;
}

GradientSets::GradientSets(const ir::Program& program) {
  for (const Action& action : program.actions)
    if (action.op == ActionOp::kStep) updates_[replica_key(action)].push_back(action.range);
}

int64_t GradientSets::update_of(const Action& action) const {
  const auto updates = updates_.find(replica_key(action));
  if (updates == updates_.end()) return 0;
  for (const wire::SampleRange& range : updates->second)
    if (range.first <= action.range.first && action.range.first < range.last) return range.first;
  return 0;
}

bool GradientSets::are_new(const Action& action) const {
  if (!ir::makes_weight_gradients(action.op)) return false;
  const auto held = held_.find(replica_key(action));
  return held == held_.end() || !held->second.contains(update_of(action));
}

bool GradientSets::note(const Action& action) {
  const bool are = are_new(action);
  if (are) held_[replica_key(action)].insert(update_of(action));
  return are;
}

size_t GradientSets::drop_before(const Action& step) {
  std::set<int64_t>& held = held_[replica_key(step)];
  const auto end = held.lower_bound(step.range.first);
  const auto dropped = static_cast<size_t>(std::distance(held.begin(), end));
  held.erase(held.begin(), end);
  return dropped;
}

const ir::ItemMemory& ItemMemories::of(const Action& action) {
  const auto [place, added] = items_.try_emplace({action.stage, action.range.size()});
  const StageId stage(static_cast<size_t>(action.stage));
  if (added) place->second = item_(stage, Samples(action.range.size()), joined_.contains(stage));
  return place->second;
}

const ir::FunctionMemory& function_of(const ir::ItemMemory& item, ActionOp op, bool is_first) {
  switch (op) {
    case ActionOp::kForward:
      return item.forward;
    case ActionOp::kRecompute:
      return item.again;
    case ActionOp::kInputGradient:
      return item.input_gradient;
    case ActionOp::kBackward:
      return is_first ? item.first_backward : item.backward;
    default:
      return is_first ? item.first_weight_gradient : item.weight_gradient;
  }
}

}  // namespace graphpipe::scheduler
