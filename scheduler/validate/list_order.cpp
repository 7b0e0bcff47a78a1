#include "scheduler/validate/list_order.h"

#include <algorithm>
#include <map>

namespace graphpipe::scheduler {
namespace {

bool is_same_item(const Action& a, const Action& b) {
  return a.stage == b.stage && a.replica == b.replica && a.range == b.range;
}

class ListOrder {
 public:
  ListOrder(const StageGraph& graph, const Schedule& schedule, const std::vector<std::vector<int32_t>>& item_of,
            const std::vector<SampleRange>& range_of)
      : graph_(graph), schedule_(schedule), item_of_(item_of), range_of_(range_of), lives_(range_of.size()) {}

  std::optional<ListProblem> run() {
    for (program_ = 0; program_ < schedule_.programs.size(); ++program_) {
      for (size_t i = 0; i < actions().size(); ++i)
        if (item_at(i) >= 0) lives_[static_cast<size_t>(item_at(i))].last = i;
      for (size_t i = 0; i < actions().size(); ++i)
        if (std::optional<ListProblem> problem = problem_at(i)) return problem;
    }
    return std::nullopt;
  }

 private:
  struct Life {
    size_t last = 0;
    bool begun = false, ran_forward = false, is_away = false;
  };
  /// The items of one replica of a stage.
  struct Replica {
    int under_way = 0;
    /// One past the last sample that an item has begun, and that a flush has ended.
    int64_t begun = 0, flushed = 0;
  };
  /// The parts in which an item's input arrives over one edge.
  struct Pieces {
    int count = 0;
    bool joined = false;
  };

  const std::vector<Action>& actions() const { return schedule_.programs[program_].actions; }
  int32_t item_at(size_t i) const { return item_of_[program_][i]; }
  Life& life_at(size_t i) { return lives_[static_cast<size_t>(item_at(i))]; }
  Replica& replica_of(const Action& action) { return replicas_[{action.stage, action.replica}]; }
  bool is_part(size_t i) const { return actions()[i].range != range_of_[static_cast<size_t>(item_at(i))]; }
  ListProblem problem(size_t i, std::string_view what) const { return {program_, i, what, {}}; }

  std::optional<ListProblem> problem_at(size_t i) {
    const Action& action = actions()[i];
    std::string_view what;
    if (action.op == ActionOp::kFlush) what = flush(action);
    if (item_at(i) < 0) return what.empty() ? std::nullopt : std::optional(problem(i, what));
    if (what = begin_item(i); what.empty()) what = use_item(i);
    if (what.empty() && action.op == ActionOp::kSlice) what = slice(i);
    if (what.empty() && action.op == ActionOp::kConcatenate) what = concatenate(i);
    if (!what.empty()) return problem(i, what);
    if (ir::is_receive(action.op) && is_part(i)) ++pieces_[{item_at(i), of_gradient(action), action.edge}].count;
    if (ir::is_send(action.op) && is_part(i) && !follows_slice(i)) return missing_slice(i);
    return missing_concatenation(i);
  }

  /// Whether a boundary action is about a gradient: values leave an edge's upper stage and arrive at its lower one.
  bool of_gradient(const Action& action) const {
    if (ir::is_message(action.op)) return ir::is_backward_message(action.op);
    const ir::StageEdge& edge = graph_.edges[ir::EdgeId(static_cast<size_t>(action.edge))];
    const ir::StageId stage(static_cast<size_t>(action.stage));
    return stage == (action.op == ActionOp::kSlice ? edge.to : edge.from);
  }

  std::string_view begin_item(size_t i) {
    const Action& action = actions()[i];
    Life& life = life_at(i);
    if (life.begun) return action.op == ActionOp::kAllocate ? "comes after the first action of its item" : "";
    life.begun = true;
    Replica& replica = replica_of(action);
    const SampleRange range = range_of_[static_cast<size_t>(item_at(i))];
    ++replica.under_way;
    replica.begun = std::max(replica.begun, range.last);
    return range.first < replica.flushed ? "comes after the flush that ends its samples" : "";
  }

  std::string_view use_item(size_t i) {
    const Action& action = actions()[i];
    Life& life = life_at(i);
    if (action.op == ActionOp::kRelease && i != life.last) return "comes before the last action of its item";
    if (action.op == ActionOp::kOffload && !life.ran_forward) return "comes before the forward of its item";
    const bool reloads = action.op == ActionOp::kReload;
    if (reloads && !life.is_away) return "brings back what is not away";
    if (!reloads && life.is_away && !ir::is_receive(action.op)) return "needs what its item has offloaded";
    if (action.op == ActionOp::kOffload || reloads) life.is_away = !reloads;
    if (action.op == ActionOp::kForward) life.ran_forward = true;
    if (i != life.last) return {};
    --replica_of(action).under_way;
    return life.is_away ? "leaves its item in the host's memory" : "";
  }

  std::string_view flush(const Action& action) {
    Replica& replica = replica_of(action);
    if (replica.under_way > 0) return "comes while an item is under way";
    if (action.range.first != replica.flushed) return "does not begin where the flush before it has ended";
    if (replica.begun > action.range.last) return "comes after items of later samples";
    replica.flushed = action.range.last;
    return {};
  }

  std::string_view slice(size_t i) const {
    if (!is_part(i)) return "cuts nothing off: the message is its whole item";
    return i + 1 < actions().size() && ir::is_send(actions()[i + 1].op) && follows_slice(i + 1)
               ? ""
               : "does not stand right before the send of what it cuts";
  }

  bool follows_slice(size_t send) const {
    if (send == 0) return false;
    const Action& cut = actions()[send - 1];
    return cut.op == ActionOp::kSlice && is_same_item(cut, actions()[send]) && cut.edge == actions()[send].edge &&
           of_gradient(cut) == of_gradient(actions()[send]);
  }

  ListProblem missing_slice(size_t i) const {
    Action cut = actions()[i];
    cut.op = ActionOp::kSlice;
    cut.peer_replica = -1;
    return {program_, i, "the message behind it is a part of its item", cut};
  }

  std::string_view concatenate(size_t i) {
    const Action& action = actions()[i];
    size_t reader = i + 1;
    while (reader < actions().size() && actions()[reader].op == ActionOp::kConcatenate) ++reader;
    if (!(reads(reader, action) ||
          (reader < actions().size() && actions()[reader].overlaps_next && reads(reader + 1, action))))
      return "does not stand right before the action that reads what it joins";
    const auto found = pieces_.find({item_at(i), of_gradient(action), action.edge});
    if (found == pieces_.end() || found->second.count < 2) return "joins what does not arrive in pieces";
    return std::exchange(found->second.joined, true) ? "joins a second time" : "";
  }

  bool reads(size_t reader, const Action& joined) const {
    if (reader >= actions().size() || !is_same_item(actions()[reader], joined)) return false;
    return of_gradient(joined) ? ir::makes_input_gradient(actions()[reader].op)
                               : actions()[reader].op == ActionOp::kForward;
  }

  std::optional<ListProblem> missing_concatenation(size_t i) {
    const Action& action = actions()[i];
    if (pieces_.empty() || !(action.op == ActionOp::kForward || ir::makes_input_gradient(action.op)))
      return std::nullopt;
    const bool backward = action.op != ActionOp::kForward;
    auto next = pieces_.lower_bound({item_at(i), backward, -1});
    for (; next != pieces_.end(); next = pieces_.erase(next)) {
      const auto [item, of_backward, edge] = next->first;
      if (item != item_at(i) || of_backward != backward) break;
      if (next->second.count < 2 || next->second.joined) continue;
      Action join = action;
      join.op = ActionOp::kConcatenate;
      join.stream = ir::stream_of(join.op);
      join.edge = edge;
      join.version = 0;
      join.overlaps_next = false;
      const bool paired = i > 0 && actions()[i - 1].overlaps_next;
      return ListProblem{program_, paired ? i - 1 : i, "the action behind it reads what arrives in pieces", join};
    }
    return std::nullopt;
  }

  const StageGraph& graph_;
  const Schedule& schedule_;
  const std::vector<std::vector<int32_t>>& item_of_;
  const std::vector<SampleRange>& range_of_;
  size_t program_ = 0;
  std::vector<Life> lives_;
  std::map<std::pair<int32_t, int32_t>, Replica> replicas_;
  /// Per item, whether of its gradient, and edge.
  std::map<std::tuple<int32_t, bool, int32_t>, Pieces> pieces_;
};

}  // namespace

std::optional<ListProblem> list_problem(const StageGraph& graph, const Schedule& schedule,
                                        const std::vector<std::vector<int32_t>>& item_of,
                                        const std::vector<SampleRange>& range_of) {
  return ListOrder(graph, schedule, item_of, range_of).run();
}

}  // namespace graphpipe::scheduler
