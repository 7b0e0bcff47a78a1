#include "scheduler/lowering/insert_transfers.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <optional>

#include "scheduler/action_problem.h"
#include "scheduler/lowering/assign_slots.h"
#include "scheduler/lowering/finish_step.h"
#include "scheduler/lowering/updates.h"
#include "support/bits.h"
#include "support/union_find.h"

namespace graphpipe::scheduler {
namespace {

Diagnostic bad_schedule(std::string message, std::string hint) {
  return Diagnostic{.code = Code::kBadSchedule, .message = std::move(message), .hint = std::move(hint)};
}

Status check_places(const StageGraph& graph, const Schedule& schedule) {
  for (const ir::Program& program : schedule.programs)
    for (size_t i = 0; i < program.actions.size(); ++i) {
      const Action& action = program.actions[i];
      if (const std::string_view what = overlap_problem(program, i); !what.empty())
        return bad_schedule(text("device ", program.device, ": ", ir::print_action(action), " ", what),
                            "overlap a forward with the backward of other samples right behind it");
      const auto stage = static_cast<size_t>(action.stage);
      const bool exists = action.stage >= 0 && stage < graph.stages.size() && action.replica >= 0 &&
                          static_cast<size_t>(action.replica) < graph.stages[StageId(stage)].choice.devices.size();
      if (!exists || !(ir::is_compute(action.op) || ir::is_update(action.op)) || action.range.empty())
        return bad_schedule(
            text("device ", program.device, ": ", ir::print_action(action), " is not a compute action of the plan"),
            "list forwards and backwards of the plan's stages and replicas only");
      if (graph.stages[StageId(stage)].choice.devices[static_cast<size_t>(action.replica)] != program.device)
        return bad_schedule(
            text("device ", program.device, ": ", ir::print_action(action), " belongs to another device"),
            "put each action on its replica's device");
    }
  return Ok{};
}

/// Puts R before the first backward action of every item of a stage that recomputes.
void insert_recompute(const StageGraph& graph, Schedule& schedule) {
  for (ir::Program& program : schedule.programs) {
    std::vector<Action> actions;
    for (size_t i = 0; i < program.actions.size(); ++i) {
      const Action& action = program.actions[i];
      const bool paired = i > 0 && program.actions[i - 1].overlaps_next;
      // An overlapped pair stays together: the R of its backward goes before its forward.
      const bool pairs = action.overlaps_next && i + 1 < program.actions.size();
      const Action& first = pairs ? program.actions[i + 1] : action;
      const bool starts_backward = ir::makes_input_gradient(first.op);
      if (starts_backward && !paired && graph.stages[StageId(static_cast<size_t>(first.stage))].choice.recompute) {
        actions.push_back(first);
        actions.back().op = ActionOp::kRecompute;
      }
      actions.push_back(action);
    }
    program.actions = std::move(actions);
  }
}

/// Actions that room is made for, for each compute action.
constexpr size_t kActionsPerCompute = 4;

/// Walks the devices in turn and appends compute actions and messages to their lists: in each round, one action of each
/// device that has one ready. A device that waits is asked again only once something has come for it: in a chain
/// gradients advance by one device per round, so asking all of them each time would be quadratic.
class Placer {
 public:
  /// `cuts`: whether slices and concatenations are placed.
  Placer(const StageGraph& graph, const Schedule& compute, bool cuts)
      : graph_(graph),
        compute_(compute),
        cuts_(cuts),
        items_(graph, compute),
        flow_(graph, items_),
        next_(compute.programs.size()),
        this_round_(words_for(compute.programs.size())),
        next_round_(this_round_.size()),
        groups_(reduction_groups(graph)),
        last_placed_(graph.stages.size()),
        program_of_(graph.stages.size()) {
    std::map<ir::DeviceId, size_t> program_of_device;
    lists_.resize(compute.programs.size());
    for (size_t i = 0; i < compute.programs.size(); ++i) {
      const ir::Program& program = compute.programs[i];
      program_of_device[program.device] = i;
      result_.programs.push_back({program.device, {}});
      // Most have about as many messages as this leaves room for.
      result_.programs.back().actions.reserve(kActionsPerCompute * program.actions.size());
      lists_[i].reserve(kActionsPerCompute * program.actions.size());
    }
    for (const StageId stage : graph.stage_ids())
      for (const ir::DeviceId device : graph.stages[stage].choice.devices)
        if (const auto held = program_of_device.find(device); held != program_of_device.end())
          program_of_[stage].push_back(held->second);
        else program_of_[stage].push_back(SIZE_MAX);  // runs nothing
    for (const ir::Program& program : compute.programs)
      for (const Action& action : program.actions)
        if (action.op == ActionOp::kReduceGradient)
          ++open_reductions_[{groups_[StageId(static_cast<size_t>(action.stage))], action.range.first}];
  }

  Status run() {
    for (size_t program = 0; program < next_.size(); ++program) set_bit(this_round_.data(), program);
    for (bool goes_on = true; goes_on; std::swap(this_round_, next_round_)) {
      goes_on = false;
      for (size_t word = 0; word < this_round_.size(); ++word)
        while (this_round_[word] != 0) {
          at_ = word * 64 + static_cast<size_t>(std::countr_zero(this_round_[word]));
          flip_bit(this_round_.data(), at_);
          GP_TRY(const bool placed, place_next(at_));
          if (placed) set_bit(next_round_.data(), at_);
        }
      for (const uint64_t programs : next_round_) goes_on = goes_on || programs != 0;
    }
    for (size_t program = 0; program < next_.size(); ++program)
      if (next_[program] < compute_.programs[program].actions.size()) return stuck(program);
    return Ok{};
  }

  ItemLists take_lists() { return std::move(lists_); }
  Schedule take_schedule() { return std::move(result_); }
  const ItemTable& items() const { return items_; }
  ItemTable take_items() { return std::move(items_); }
  /// Reduction groups in the order in which their last compute actions were placed.
  std::vector<int> groups_done() const {
    std::vector<std::pair<size_t, int>> last;
    for (const StageId group : graph_.stage_ids())
      if (last_placed_[group] > 0) last.push_back({last_placed_[group], static_cast<int>(group.index())});
    std::ranges::sort(last);
    std::vector<int> groups;
    for (const auto& [number, group] : last) groups.push_back(group);
    return groups;
  }

 private:
  Result<bool> place_next(size_t program) {
    const auto& actions = compute_.programs[program].actions;
    const size_t first = next_[program];
    if (first == actions.size()) return false;
    if (ir::is_update(actions[first].op)) return place_update(program, actions[first]);
    // An overlapped pair is placed at once, with the messages of both behind it.
    const size_t count = actions[first].overlaps_next ? 2 : 1;
    std::array<ItemIndex, 2> items{};
    for (size_t i = 0; i < count; ++i) {
      const Action& action = actions[first + i];
      items[i] = items_.item_of(action);
      if (items[i] < 0 || items_[items[i]].range != action.range)
        return bad_schedule(text("device ", compute_.programs[program].device, ": ", ir::print_action(action),
                                 " has no forward with the same samples"),
                            "give every backward the range of a forward");
      if (!flow_.is_ready(items[i], action.op)) return false;
    }
    for (size_t i = 0; i < count; ++i) place_concatenations(program, actions[first + i], items[i]);
    for (size_t i = 0; i < count; ++i) append(program, actions[first + i], items[i]);
    for (size_t i = 0; i < count; ++i) note_placed(actions[first + i]);
    for (size_t i = 0; i < count; ++i)
      for (const Message& message : flow_.finish(items[i], actions[first + i].op)) place_message(program, message);
    next_[program] += count;
    return true;
  }

  /// Asks the program again: in this round if its turn is still to come.
  void wake(size_t program) { set_bit((program > at_ ? this_round_ : next_round_).data(), program); }

  void note_placed(const Action& action) {
    if (const int group = groups_[StageId(static_cast<size_t>(action.stage))]; group >= 0)
      last_placed_[StageId(static_cast<size_t>(group))] = ++placed_;
  }

  /// A step waits for its reduction: what comes after it may not be sent before the others have contributed.
  bool place_update(size_t program, const Action& action) {
    const int group = groups_[StageId(static_cast<size_t>(action.stage))];
    int& open = open_reductions_[{group, action.range.first}];
    if (action.op == ActionOp::kReduceGradient && --open == 0) {
      for (const size_t waiting : wait_for_reduction_[{group, action.range.first}]) wake(waiting);
    }
    if (action.op == ActionOp::kStep && group >= 0 && open > 0) {
      wait_for_reduction_[{group, action.range.first}].push_back(program);
      return false;
    }
    append(program, action, -1);
    ++next_[program];
    return true;
  }

  void append(size_t program, const Action& action, ItemIndex item) {
    result_.programs[program].actions.push_back(action);
    lists_[program].push_back(item);
  }

  void place_message(size_t sender, const Message& message) {
    const Item& from = items_[message.from];
    const Item& to = items_[message.to];
    Action action = communication_action(from, message.range);
    action.op = message.backward ? ActionOp::kSendBackward : ActionOp::kSendForward;
    action.edge = static_cast<int32_t>(message.edge.index());
    if (cuts_ && message.range != from.range) append(sender, with_op(action, ActionOp::kSlice), message.from);
    action.peer_replica = to.replica;
    append(sender, action, message.from);
    action.op = message.backward ? ActionOp::kReceiveBackward : ActionOp::kReceiveForward;
    action.stage = static_cast<int32_t>(to.stage.index());
    action.replica = to.replica;
    action.peer_replica = from.replica;
    const size_t receiver = program_of_[to.stage][static_cast<size_t>(to.replica)];
    append(receiver, action, message.to);
    wake(receiver);
    if (cuts_ && message.range != to.range) ++pieces_[{message.to, message.backward, action.edge}];
  }

  /// What an action reads and has arrived in pieces is joined right before the action, edge by edge.
  void place_concatenations(size_t program, const Action& reader, ItemIndex item) {
    const bool backward = reader.op != ActionOp::kForward;
    if (pieces_.empty() || (backward && !ir::makes_input_gradient(reader.op))) return;
    for (auto next = pieces_.lower_bound({item, backward, -1}); next != pieces_.end(); next = pieces_.erase(next)) {
      const auto [reading, of_gradient, edge] = next->first;
      if (reading != item || of_gradient != backward) break;
      Action join = communication_action(items_[item], items_[item].range);
      join.op = ActionOp::kConcatenate;
      join.edge = edge;
      append(program, join, item);
    }
  }

  static Action with_op(Action action, ActionOp op) {
    action.op = op;
    return action;
  }

  static Action communication_action(const Item& item, SampleRange range) {
    Action action;
    action.stream = ir::Stream::kCommunication;
    action.stage = static_cast<int32_t>(item.stage.index());
    action.replica = item.replica;
    action.range = range;
    return action;
  }

  Diagnostic stuck(size_t program) const {
    const ir::Program& list = compute_.programs[program];
    return bad_schedule(
        text("device ", list.device, ", action ", next_[program], ": ", ir::print_action(list.actions[next_[program]]),
             " waits for samples that are computed only after it"),
        "run more forwards before the first backward in the stages above");
  }

  const StageGraph& graph_;
  const Schedule& compute_;
  const bool cuts_;
  ItemTable items_;
  DataFlow flow_;
  std::vector<size_t> next_;
  /// Programs to ask, in this round and in the one after it, and the one whose turn it is.
  BitWords this_round_, next_round_;
  size_t at_ = 0;
  IdMap<StageId, int> groups_;
  /// Per reduction group and first sample of the update: replicas that have not contributed yet.
  std::map<std::pair<int, int64_t>, int> open_reductions_;
  /// And the programs whose step waits for them.
  std::map<std::pair<int, int64_t>, std::vector<size_t>> wait_for_reduction_;
  /// Per reduction group: which of all placed compute actions its last one was, from 1.
  IdMap<StageId, size_t> last_placed_;
  size_t placed_ = 0;
  /// Messages with parts of what an item reads, by item, whether of its gradient, and edge.
  std::map<std::tuple<ItemIndex, bool, int32_t>, int> pieces_;
  /// Per stage and replica.
  IdMap<StageId, std::vector<size_t>> program_of_;
  Schedule result_;
  ItemLists lists_;
};

}  // namespace

IdMap<StageId, int> reduction_groups(const StageGraph& graph) {
  std::vector<bool> reduces(graph.stages.size(), false);
  for (const StageId stage : graph.stage_ids())
    reduces[stage.index()] = graph.stages[stage].is_trained() && graph.stages[stage].choice.devices.size() > 1;
  UnionFind<size_t> joined(graph.stages.size());
  for (const ir::SharedWeights& shared : graph.shared) {
    std::optional<StageId> first;
    for (const StageId stage : shared.stages) {
      if (!graph.stages[stage].is_trained()) continue;
      reduces[stage.index()] = true;
      if (first) joined.join(first->index(), stage.index());
      else first = stage;
    }
  }
  IdMap<StageId, int> group(graph.stages.size(), -1);
  for (const StageId stage : graph.stage_ids())
    if (reduces[stage.index()]) group[stage] = static_cast<int>(joined.find(stage.index()));
  return group;
}

Result<LoweredSchedule> lower_transfers(const StageGraph& graph, Schedule compute, const LoweringOptions& options) {
  GP_TRY_VOID(check_places(graph, compute));
  const bool updated = has_updates(compute);
  if (updated && options.norm)
    return bad_schedule("a norm over all gradients in a schedule with several updates",
                        "use a synchronous policy, or no gradient clipping");
  insert_recompute(graph, compute);
  Placer placer(graph, compute, !options.only_what_takes_time);
  GP_TRY_VOID(placer.run());
  ItemLists lists = placer.take_lists();
  Schedule schedule = placer.take_schedule();
  schedule.policy = compute.policy;
  schedule.starts = compute.starts;
  if (!options.only_what_takes_time) assign_slots(placer.items(), lists, schedule);
  if (options.finish_step && !updated) finish_step(graph, placer.groups_done(), options.norm, schedule);
  if (updated)
    for (std::vector<ItemIndex>& list : lists) std::erase(list, -1);
  return LoweredSchedule{.schedule = std::move(schedule), .items = placer.take_items(), .items_of = std::move(lists)};
}

Result<Schedule> insert_transfers(const StageGraph& graph, Schedule compute, const LoweringOptions& options) {
  GP_TRY(LoweredSchedule lowered, lower_transfers(graph, std::move(compute), options));
  return std::move(lowered.schedule);
}

}  // namespace graphpipe::scheduler
