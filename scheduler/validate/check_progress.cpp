// Deadlock freedom: the programs are walked without time, first with sends that buffer, then with sends and receives
// that block until the other end is reached. A walk that stops before the ends of all lists is a deadlock. One
// that does not stop puts all actions into one global order in which every message is a single step: a barrier between
// any two of these steps leaves the schedule alive (docs/schedules.md, section 8.7).

#include <algorithm>
#include <map>

#include "scheduler/validate/check_tables.h"

namespace graphpipe::scheduler::check {
namespace {

class Walk {
 public:
  Walk(const Tables& tables, bool rendezvous) : tables_(tables), rendezvous_(rendezvous) {
    const size_t programs = tables.schedule.programs.size();
    next_.assign(programs, 0);
    for (const ir::Program& program : tables.schedule.programs) sent_.emplace_back(program.actions.size(), 0);
    groups_ = stages_reduced_together(tables.graph);
    feeds_.resize(tables.items.size());
    each_row(tables, [&](Place place, const Action& action) {
      if (action.op == ActionOp::kReduceGradient) ++open_reductions_[update_of(action)];
      if (action.op == ActionOp::kNorm) ++open_norms_;
      if (ir::is_receive(action.op)) feeds_[static_cast<size_t>(item_at(place))].push_back(place);
    });
  }

  Diagnostics run() {
    for (bool progress = true; progress;) {
      progress = false;
      for (size_t p = 0; p < next_.size(); ++p)
        while (advance(p)) progress = true;
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
  bool is_sent(Place place) const {
    return sent_[static_cast<size_t>(place.program)][static_cast<size_t>(place.position)] != 0;
  }
  void mark(Place place) { sent_[static_cast<size_t>(place.program)][static_cast<size_t>(place.position)] = 1; }

  /// Whether all messages of this direction of the item have been received and sent.
  bool has_arrived(int item, bool backward) const {
    return std::all_of(feeds_[static_cast<size_t>(item)].begin(), feeds_[static_cast<size_t>(item)].end(),
                       [&](Place receive) {
                         if (ir::is_backward_message(tables_.action(receive).op) != backward) return true;
                         return is_sent(partner(receive)) &&
                                static_cast<size_t>(receive.position) < next_[static_cast<size_t>(receive.program)];
                       });
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
    if (action.op == ActionOp::kNorm) --open_norms_;
    if (action.op == ActionOp::kReduceGradient) --open_reductions_[update_of(action)];
    if (action.op == ActionOp::kStep) {
      const auto open = open_reductions_.find(update_of(action));
      if (open_norms_ > 0 || (open != open_reductions_.end() && open->second > 0)) return false;
    }
    ++next_[p];
    return true;
  }

  bool advance_message(size_t p, Place place) {
    const Place other = partner(place);
    if (rendezvous_ && other.program != place.program) {
      if (next_[static_cast<size_t>(other.program)] != static_cast<size_t>(other.position)) return false;
      ++next_[static_cast<size_t>(other.program)];
      mark(other);
    }
    mark(place);
    ++next_[p];
    return true;
  }

  const Tables& tables_;
  const bool rendezvous_;
  std::vector<size_t> next_;
  std::vector<std::vector<uint8_t>> sent_;
  /// Per item its receives.
  std::vector<std::vector<Place>> feeds_;
  IdMap<StageId, int> groups_;
  std::map<std::pair<int, int64_t>, int> open_reductions_;
  int open_norms_ = 0;
};

}  // namespace

Diagnostics check_progress(const Tables& tables) {
  if (Diagnostics problems = Walk(tables, false).run(); !problems.empty()) return problems;
  return Walk(tables, true).run();
}

}  // namespace graphpipe::scheduler::check
