#include "scheduler/simulate/simulate.h"

#include <algorithm>

#include "scheduler/simulate/simulator.h"

namespace graphpipe::scheduler {
namespace {

constexpr const char* kCheckHint = "run `graphpipe check` on the schedule for all of its problems";

}  // namespace

void Simulator::prepare() {
  const size_t actions = resolved_.actions.size();
  spans_.assign(actions, {kUnknown, kUnknown});
  causes_.assign(actions, -1);
  reached_.assign(actions, 0);
  items_.resize(resolved_.items.size());
  for (size_t i = 0; i < items_.size(); ++i) {
    items_[i].missing_forward = resolved_.forward_needs[i];
    items_[i].missing_backward = resolved_.backward_needs[i];
  }
  for (const ResolvedAction& action : resolved_.actions)
    if (action.item >= 0) ++item(action.item).actions_left;
  occupant_.assign(static_cast<size_t>(resolved_.slot_count), -1);
  links_.resize(static_cast<size_t>(resolved_.link_count));
  programs_.resize(schedule_.programs.size());
  prepare_collectives();
  for (size_t p = 0; p < programs_.size(); ++p) {
    programs_[p].next = resolved_.first_action[p];
    programs_[p].end = resolved_.first_action[p + 1];
    const Ticks begin = to_ticks(cluster_.runtime.step, options_.ticks_per_second);
    queue_.push({p < schedule_.starts.size() ? std::max(begin, schedule_.starts[p]) : begin, p});
  }
}

void Simulator::advance(size_t index) {
  ProgramRun& program = programs_[index];
  while (program.next < program.end) {
    const ActionIndex at = program.next;
    const Outcome outcome = step(index, at, action_of(at));
    if (outcome == Outcome::kWait) return;
    leave_slot(at);
    ++program.next;
    if (outcome == Outcome::kLater) return;
  }
  program.finished = true;
}

Simulator::Outcome Simulator::step(size_t program, ActionIndex at, const Action& action) {
  if (ir::is_send(action.op)) return run_send(program, at, action);
  if (ir::is_receive(action.op)) return run_receive(program, at, action);
  if (ir::is_compute(action.op)) return run_compute(program, at, action);
  if (ir::is_of_item(action.op)) return run_item_action(program, at);
  if (ends_too_early(at)) return Outcome::kWait;
  if (action.op == ActionOp::kNorm) return run_norm(program, at);
  if (action.op == ActionOp::kStep) return run_step(program, at, action);
  if (action.op == ActionOp::kReduceGradient) {
    const int32_t number = collective_of_action_[static_cast<size_t>(at)];
    if (number < 0) return fail(at, "reduces a stage that has nothing to reduce");
    programs_[program].reduced.push_back(static_cast<size_t>(number));
    return contribute(program, at, collectives_[static_cast<size_t>(number)]);
  }
  span(at) = {programs_[program].now, programs_[program].now};
  return Outcome::kNext;
}

std::string_view Simulator::order_problem(const Action& action, const ItemRun& item) const {
  switch (action.op) {
    case ActionOp::kForward:
      return item.state == ItemState::kNew ? "" : "runs a forward a second time";
    case ActionOp::kBackward:
    case ActionOp::kInputGradient:
    case ActionOp::kRecompute:
      return item.state == ItemState::kForwardDone ? "" : "does not follow its forward";
    default:
      return item.state == ItemState::kInputGradientDone ? "" : "does not follow its input gradient";
  }
}

Simulator::Outcome Simulator::run_compute(size_t program, ActionIndex at, const Action& action) {
  const ItemIndex index = resolved(at).item;
  ItemRun& work = item(index);
  if (const std::string_view what = order_problem(action, work); !what.empty()) return fail(at, what);
  if (!enter_slot(at, work)) return fail(at, "uses a slot that another item still uses");
  const bool forward = action.op == ActionOp::kForward;
  const bool backward = ir::makes_input_gradient(action.op);
  if ((forward && work.missing_forward > 0) || (backward && work.missing_backward > 0))
    return wait_for(program, index, backward);
  if (!action.overlaps_next) {
    start_compute(program, at, work, forward);
    return Outcome::kLater;
  }
  // An overlapped pair starts when both of its halves can.
  const ItemIndex other = resolved(at + 1).item;
  if (item(other).missing_backward > 0) return wait_for(program, other, true);
  ProgramRun& run = programs_[program];
  run.pair_ready = item(other).backward_ready;
  run.pair_cause = item(other).backward_cause;
  start_compute(program, at, work, forward);
  run.pair_ready = Ticks(0);
  return Outcome::kLater;
}

/// Slices, concatenations and memory: their order is known to be right. The action that reads what arrives waits for
/// it.
Simulator::Outcome Simulator::run_item_action(size_t program, ActionIndex at) {
  if (!enter_slot(at, item(resolved(at).item))) return fail(at, "uses a slot that another item still uses");
  ProgramRun& run = programs_[program];
  span(at) = {run.now, run.now + resolved(at).duration};
  causes_[static_cast<size_t>(at)] = run.last_compute;
  if (resolved(at).duration == Ticks(0)) return Outcome::kNext;
  run.last_compute = at;
  queue_.push({span(at).end, program});
  return Outcome::kLater;
}

Simulator::Outcome Simulator::wait_for(size_t program, ItemIndex index, bool backward) {
  programs_[program].waits_for = index;
  programs_[program].waits_backward = backward;
  return Outcome::kWait;
}

void Simulator::start_compute(size_t program, ActionIndex at, const ItemRun& work, bool forward) {
  ProgramRun& run = programs_[program];
  const ActionOp op = action_of(at).op;
  const bool waits = forward || ir::makes_input_gradient(op);
  Ticks ready = !waits ? Ticks(0) : forward ? work.forward_ready : work.backward_ready;
  ActionIndex cause = forward ? work.forward_cause : work.backward_cause;
  if (run.pair_ready > ready) {
    ready = run.pair_ready;
    cause = run.pair_cause;
  }
  const bool late = ready > run.now;
  const Ticks start = late ? ready : run.now;
  span(at) = {start, start + resolved(at).duration};
  causes_[static_cast<size_t>(at)] = late ? cause : run.last_compute;
  run.last_compute = at;
  ItemRun& changed = item(resolved(at).item);
  if (op == ActionOp::kForward) changed.state = ItemState::kForwardDone;
  if (op == ActionOp::kInputGradient) changed.state = ItemState::kInputGradientDone;
  if (ir::makes_weight_gradients(op)) changed.state = ItemState::kDone;
  queue_.push({span(at).end, program});
}

Simulator::Outcome Simulator::fail(ActionIndex at, std::string_view what) {
  const size_t p = program_of(at);
  problem_ = schedule_problem(schedule_, p, static_cast<size_t>(at - resolved_.first_action[p]), what, kCheckHint);
  queue_ = {};
  return Outcome::kWait;
}

Diagnostic Simulator::stuck(size_t program) const {
  const ActionIndex at = programs_[program].next;
  return schedule_problem(schedule_, program, static_cast<size_t>(at - resolved_.first_action[program]),
                          "waits forever", kCheckHint);
}

Timeline Simulator::take_timeline() const {
  Timeline timeline;
  const auto place_of = [this](ActionIndex at) {
    if (at < 0) return ActionPlace{};
    const size_t p = program_of(at);
    return ActionPlace{static_cast<int32_t>(p), at - resolved_.first_action[p]};
  };
  for (size_t p = 0; p < programs_.size(); ++p) {
    const auto first = static_cast<size_t>(resolved_.first_action[p]),
               last = static_cast<size_t>(resolved_.first_action[p + 1]);
    timeline.spans.emplace_back(spans_.begin() + static_cast<ptrdiff_t>(first),
                                spans_.begin() + static_cast<ptrdiff_t>(last));
    std::vector<ActionPlace>& causes = timeline.causes.emplace_back();
    for (size_t at = first; at < last; ++at) {
      causes.push_back(place_of(causes_[at]));
      timeline.makespan = std::max(timeline.makespan, spans_[at].end);
    }
  }
  return timeline;
}

Result<Timeline> simulate(const StageGraph& graph, const ir::Cluster& cluster, const Schedule& schedule,
                          const SimulateOptions& options) {
  GP_TRY(const ResolvedSchedule resolved, resolve(graph, cluster, schedule, options.ticks_per_second));
  return Simulator(graph, cluster, schedule, options, resolved).run();
}

Result<Timeline> simulate(const StageGraph& graph, const ir::Cluster& cluster, const LoweredSchedule& lowered,
                          const SimulateOptions& options) {
  GP_TRY(const ResolvedSchedule resolved, resolve(graph, cluster, lowered, options.ticks_per_second));
  return Simulator(graph, cluster, lowered.schedule, options, resolved).run();
}

Result<Ticks> simulated_makespan(const StageGraph& graph, const ir::Cluster& cluster, const LoweredSchedule& lowered,
                                 const SimulateOptions& options) {
  GP_TRY(const ResolvedSchedule resolved, resolve(graph, cluster, lowered, options.ticks_per_second));
  return Simulator(graph, cluster, lowered.schedule, options, resolved).run_for_makespan();
}

}  // namespace graphpipe::scheduler
