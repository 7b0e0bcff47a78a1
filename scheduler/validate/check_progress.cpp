// Deadlock freedom: the programs are walked without time, first with sends that buffer, then with sends and receives
// that block until the other end is reached. A walk that stops before the ends of all lists is a deadlock. One that
// does not stop puts all actions into one global order in which every message is a single step: a barrier between any
// two of these steps causes no deadlock (docs/schedules.md, section 8.7). Replicas that exchange sums run their parts
// of a micro-batch at once.

#include <array>
#include <map>
#include <set>
#include <tuple>

#include "scheduler/validate/check_tables.h"

namespace graphpipe::scheduler::check {
namespace {

class Walk {
 public:
  Walk(const Tables& tables, bool rendezvous) : tables_(tables), rendezvous_(rendezvous) {
    const size_t programs = tables.schedule.programs.size();
    next_.assign(programs, 0);
    for (const ir::Program& program : tables.schedule.programs) passed_.emplace_back(program.actions.size(), 0);
    groups_ = stages_reduced_together(tables.graph);
    awaited_.resize(tables.items.size());
    for_each_action(tables, [&](Place place, const Action& action) {
      if (action.op == ActionOp::kReduceGradient) ++open_reductions_[update_of(action)];
      if (action.op == ActionOp::kNorm) ++open_norms_;
      if (ir::is_receive(action.op)) ++awaited(place);
    });
  }

  Diagnostics run() {
    for (size_t p = 0; p < next_.size(); ++p) may_advance_.push_back(p);
    while (!may_advance_.empty()) {
      const size_t p = may_advance_.back();
      may_advance_.pop_back();
      while (advance(p)) continue;
    }
    for (size_t p = 0; p < next_.size(); ++p)
      if (next_[p] < size(p))
        return {
            tables_.problem(static_cast<int>(p), static_cast<int>(next_[p]),
                            rendezvous_ ? "waits forever where sends block until they are received" : "waits forever",
                            rendezvous_ ? "list the messages of all devices in one global order"
                                        : "run what it waits for earlier on the other device")};
    return {};
  }

 private:
  size_t size(size_t p) const { return tables_.schedule.programs[p].actions.size(); }
  int item_at(Place place) const {
    return tables_.item_of[static_cast<size_t>(place.program)][static_cast<size_t>(place.position)];
  }
  /// The reduction group and the first sample of its update.
  std::pair<int, int64_t> update_of(const Action& action) const {
    return {groups_[StageId(static_cast<size_t>(action.stage))], action.range.first};
  }
  uint8_t& passed(Place place) {
    return passed_[static_cast<size_t>(place.program)][static_cast<size_t>(place.position)];
  }
  /// Messages that the item of a receive still waits for, in its direction.
  int& awaited(Place receive) {
    const bool backward = ir::is_backward_message(tables_.action(receive).op);
    return awaited_[static_cast<size_t>(item_at(receive))][backward ? 1 : 0];
  }

  /// Whether all messages of this direction of the item have been received and sent.
  bool has_arrived(int item, bool backward) const { return awaited_[static_cast<size_t>(item)][backward ? 1 : 0] == 0; }
  /// One end of a message has been passed: after the other it has arrived, and its reader may go on.
  void pass(Place place) {
    passed(place) = 1;
    const Place other = partner(place);
    if (passed(other) == 0) return;
    const Place receive = ir::is_receive(tables_.action(place).op) ? place : other;
    --awaited(receive);
    may_advance_.push_back(static_cast<size_t>(receive.program));
  }
  Place partner(Place place) const {
    return tables_.partner[static_cast<size_t>(place.program)][static_cast<size_t>(place.position)];
  }

  bool advance(size_t p) {
    if (next_[p] == size(p)) return false;
    const Place place{static_cast<int>(p), static_cast<int>(next_[p])};
    const Action& action = tables_.action(place);
    if (ir::is_message(action.op)) return advance_message(p, place);
    if (action.op == ActionOp::kForward && !has_arrived(item_at(place), false)) return false;
    if (action.overlaps_next && !has_arrived(item_at({place.program, place.position + 1}), true)) return false;
    const bool backward = action.op == ActionOp::kBackward || action.op == ActionOp::kInputGradient;
    if (backward && !has_arrived(item_at(place), true)) return false;
    if (exchanges_sums(action) && !meets_replicas(p, action)) return false;
    if (action.op == ActionOp::kNorm && --open_norms_ == 0) wake(wait_for_norm_);
    if (action.op == ActionOp::kReduceGradient && --open_reductions_[update_of(action)] == 0)
      wake(wait_for_reduction_[update_of(action)]);
    if (action.op == ActionOp::kStep && !may_step(p, update_of(action))) return false;
    ++next_[p];
    return true;
  }

  bool exchanges_sums(const Action& action) const {
    return ir::is_compute(action.op) && action.op != ActionOp::kWeightGradient &&
           tables_.graph.stages[StageId(static_cast<size_t>(action.stage))].exchanges_sums;
  }

  /// Whether all replicas have come to this pass of the action's micro-batch.
  bool meets_replicas(size_t p, const Action& action) {
    const ir::StageChoice& choice = tables_.graph.stages[StageId(static_cast<size_t>(action.stage))].choice;
    std::set<size_t>& there = meetings_[{action.stage, action.op, action.range.first / choice.micro_batch.count}];
    const bool is_new = there.insert(p).second;
    const bool all = there.size() == choice.devices.size();
    if (is_new && all) may_advance_.insert(may_advance_.end(), there.begin(), there.end());
    return all;
  }

  bool may_step(size_t p, const std::pair<int, int64_t>& update) {
    const auto open = open_reductions_.find(update);
    const bool reduced = open == open_reductions_.end() || open->second == 0;
    if (!reduced) wait_for_reduction_[update].push_back(p);
    else if (open_norms_ > 0) wait_for_norm_.push_back(p);
    return reduced && open_norms_ == 0;
  }

  bool advance_message(size_t p, Place place) {
    const Place other = partner(place);
    if (rendezvous_ && other.program != place.program) {
      const auto meets = static_cast<size_t>(other.program);
      if (next_[meets] != static_cast<size_t>(other.position)) return false;
      ++next_[meets];
      pass(other);
      may_advance_.push_back(meets);
    }
    pass(place);
    ++next_[p];
    return true;
  }

  void wake(std::vector<size_t>& waiting) {
    may_advance_.insert(may_advance_.end(), waiting.begin(), waiting.end());
    waiting.clear();
  }

  const Tables& tables_;
  const bool rendezvous_;
  std::vector<size_t> next_;
  /// Programs that may have something to do; one may stand here twice. All others wait for what will put them here.
  std::vector<size_t> may_advance_;
  /// Per program and action: whether a message has been passed.
  std::vector<std::vector<uint8_t>> passed_;
  /// Per item its messages that have not arrived, forward and backward.
  std::vector<std::array<int, 2>> awaited_;
  IdMap<StageId, int> groups_;
  /// By stage, pass and micro-batch the programs that have come to it.
  std::map<std::tuple<int32_t, ActionOp, int64_t>, std::set<size_t>> meetings_;
  std::map<std::pair<int, int64_t>, int> open_reductions_;
  std::map<std::pair<int, int64_t>, std::vector<size_t>> wait_for_reduction_;
  int open_norms_ = 0;
  std::vector<size_t> wait_for_norm_;
};

}  // namespace

Diagnostics check_progress(const Tables& tables) {
  if (Diagnostics problems = Walk(tables, false).run(); !problems.empty()) return problems;
  return Walk(tables, true).run();
}

}  // namespace graphpipe::scheduler::check
