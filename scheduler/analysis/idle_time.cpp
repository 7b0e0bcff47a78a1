#include "scheduler/analysis/idle_time.h"

#include <algorithm>

#include "scheduler/lowering/items.h"

namespace graphpipe::scheduler {
namespace {

constexpr std::array<std::string_view, kIdleCauseCount> kNames = {
    "warm-up", "forward input", "gradient", "in-flight limit", "link", "collective", "drain"};

class Ledger {
 public:
  Ledger(const StageGraph& graph, const Schedule& schedule, const Timeline& timeline)
      : schedule_(schedule), timeline_(timeline), items_(graph, schedule), input_ready_(items_.size()) {
    for (size_t p = 0; p < schedule.programs.size(); ++p)
      for (size_t i = 0; i < schedule.programs[p].actions.size(); ++i) {
        const Action& action = schedule.programs[p].actions[i];
        if (action.op != ActionOp::kReceiveForward) continue;
        const ItemIndex item = item_of(action);
        if (item < 0) continue;
        Ticks& ready = input_ready_[static_cast<size_t>(item)];
        ready = std::max(ready, arrival(p, i));
      }
  }

  IdleTime of(size_t p) {
    const std::vector<Action>& actions = schedule_.programs[p].actions;
    IdleTime idle{};
    Ticks end;
    bool started = false;
    next_forwards(actions);
    for (size_t i = 0; i < actions.size(); ++i) {
      if (!keeps_busy(actions[i].op)) continue;
      const Span span = timeline_.spans[p][i];
      if (span.start > end) {
        if (started) split_gap(p, i, {end, span.start}, idle);
        else add(idle, IdleCause::kWarmUp, span.start - end);
      }
      started = true;
      end = std::max(end, span.end);
    }
    add(idle, started ? IdleCause::kDrain : IdleCause::kWarmUp, timeline_.makespan - end);
    return idle;
  }

 private:
  static void add(IdleTime& idle, IdleCause cause, Ticks ticks) { idle[static_cast<size_t>(cause)] += ticks; }

  ItemIndex item_of(const Action& action) const { return items_.item_of(action); }

  /// When the message of a receive is there: at the end of its send, though its action may be posted later.
  Ticks arrival(size_t p, size_t position) const {
    const ActionPlace send = timeline_.causes[p][position];
    if (send.program < 0) return timeline_.spans[p][position].end;
    return timeline_.spans[static_cast<size_t>(send.program)][static_cast<size_t>(send.position)].end;
  }

  /// When the message of a send was made: at the end of the last compute action before it.
  Ticks made_at(ActionPlace send) const {
    const auto p = static_cast<size_t>(send.program);
    for (size_t i = static_cast<size_t>(send.position); i-- > 0;)
      if (ir::is_compute(schedule_.programs[p].actions[i].op)) return timeline_.spans[p][i].end;
    return Ticks(0);
  }

  /// Per position the forward that follows it in the list.
  void next_forwards(const std::vector<Action>& actions) {
    next_forward_.assign(actions.size(), -1);
    int next = -1;
    for (size_t i = actions.size(); i-- > 0;) {
      next_forward_[i] = next;
      if (actions[i].op == ActionOp::kForward) next = static_cast<int>(i);
    }
  }

  void split_gap(size_t p, size_t i, Span gap, IdleTime& idle) {
    const std::vector<Action>& actions = schedule_.programs[p].actions;
    const ActionPlace cause = timeline_.causes[p][i];
    const Action* by =
        cause.program < 0
            ? nullptr
            : &schedule_.programs[static_cast<size_t>(cause.program)].actions[static_cast<size_t>(cause.position)];
    if (by == nullptr || !ir::is_send(by->op)) {
      const bool link = by != nullptr && ir::is_compute(actions[i].op);
      return add(idle, link ? IdleCause::kLink : IdleCause::kCollective, gap.end - gap.start);
    }
    const Ticks made = std::clamp(made_at(cause), gap.start, gap.end);
    add(idle, IdleCause::kLink, gap.end - made);
    if (!ir::is_backward_message(by->op)) return add(idle, IdleCause::kForwardInput, made - gap.start);
    Ticks could_run = made;
    if (ir::makes_input_gradient(actions[i].op) && next_forward_[i] >= 0) {
      const ItemIndex item = item_of(actions[static_cast<size_t>(next_forward_[i])]);
      if (item >= 0) could_run = std::clamp(input_ready_[static_cast<size_t>(item)], gap.start, made);
    }
    add(idle, IdleCause::kGradient, could_run - gap.start);
    add(idle, IdleCause::kInFlightLimit, made - could_run);
  }

  const Schedule& schedule_;
  const Timeline& timeline_;
  ItemTable items_;
  /// Per item when all that its forward needs has arrived.
  std::vector<Ticks> input_ready_;
  std::vector<int> next_forward_;
};

}  // namespace

std::string_view idle_cause_name(IdleCause cause) { return kNames[static_cast<size_t>(cause)]; }

std::vector<IdleTime> idle_time(const StageGraph& graph, const Schedule& schedule, const Timeline& timeline) {
  Ledger ledger(graph, schedule, timeline);
  std::vector<IdleTime> idle;
  for (size_t p = 0; p < schedule.programs.size(); ++p) idle.push_back(ledger.of(p));
  return idle;
}

}  // namespace graphpipe::scheduler
