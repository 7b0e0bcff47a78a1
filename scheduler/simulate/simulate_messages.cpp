// Transfers, their links, and the ring slots that they enter.

#include <algorithm>

#include "scheduler/simulate/simulator.h"

namespace graphpipe::scheduler {

/// Whether the producing action of a send has run.
bool Simulator::is_available(const Action& action, const ItemRun& item) const {
  return item.state >= (action.op == ActionOp::kSendForward ? ItemState::kForwardDone : ItemState::kInputGradientDone);
}

Simulator::Outcome Simulator::run_send(size_t program, ActionIndex at, const Action& action) {
  ItemRun& sent = item(resolved(at).item);
  if (!is_available(action, sent)) return fail(at, "sends what has not been computed");
  if (!enter_slot(at, sent)) return fail(at, "names a slot that is not its item's");
  ProgramRun& run = programs_[program];
  const bool remote = resolved(at).link >= 0;
  if (options_.rendezvous && remote) return meet(program, at) ? Outcome::kLater : Outcome::kWait;
  transfer(at, run.now + resolved(at).busy, run.last_compute);
  if (reached_[static_cast<size_t>(resolved(at).partner)]) deliver(at);
  reached_[static_cast<size_t>(at)] = 1;
  return keep_busy(program, at);
}

/// A message takes a moment of its device's compute, at both ends.
Simulator::Outcome Simulator::keep_busy(size_t program, ActionIndex at) {
  if (resolved(at).busy == Ticks(0)) return Outcome::kNext;
  queue_.push({programs_[program].now + resolved(at).busy, program});
  return Outcome::kLater;
}

Simulator::Outcome Simulator::run_receive(size_t program, ActionIndex at, const Action& action) {
  ItemRun& received = item(resolved(at).item);
  const bool forward = action.op == ActionOp::kReceiveForward;
  if (received.state != (forward ? ItemState::kNew : ItemState::kForwardDone))
    return fail(at,
                forward ? "comes after the forward that needs it" : "comes outside its item's forward and backward");
  if (!enter_slot(at, received)) return fail(at, "is posted into a slot that another item still uses");
  const ActionIndex send = resolved(at).partner;
  if (options_.rendezvous && resolved(send).link >= 0) return meet(program, at) ? Outcome::kLater : Outcome::kWait;
  span(at).start = programs_[program].now;
  reached_[static_cast<size_t>(at)] = 1;
  if (reached_[static_cast<size_t>(send)]) deliver(send);
  return keep_busy(program, at);
}

/// Rendezvous: the first end waits; when the second arrives both go on at the arrival of the message.
bool Simulator::meet(size_t program, ActionIndex at) {
  ProgramRun& run = programs_[program];
  const ActionIndex partner = resolved(at).partner;
  reached_[static_cast<size_t>(at)] = 1;
  span(at).start = run.now;
  if (!reached_[static_cast<size_t>(partner)]) return false;
  const ActionIndex send = ir::is_send(action_of(at).op) ? at : partner;
  const size_t other = program_of(partner);
  transfer(send, run.now, programs_[program_of(send)].last_compute);
  deliver(send);
  const Ticks arrival = span(send).end;
  leave_slot(partner);
  ++programs_[other].next;
  queue_.push({arrival, other});
  queue_.push({arrival, program});
  return true;
}

void Simulator::transfer(ActionIndex send, Ticks from, ActionIndex cause) {
  const ResolvedAction& sending = resolved(send);
  Ticks start = from;
  if (sending.link >= 0) {
    Link& link = links_[static_cast<size_t>(sending.link)];
    if (link.free > start) {
      start = link.free;
      cause = link.last;
    }
    link.free = start + sending.duration;
    link.last = send;
  }
  span(send) = {start, start + sending.duration + sending.latency};
  causes_[static_cast<size_t>(send)] = cause;
}

/// Hands the message to the receiving item and wakes its program where that was the last one it waited for.
void Simulator::deliver(ActionIndex send) {
  const ActionIndex receive = resolved(send).partner;
  const Ticks arrival = span(send).end;
  span(receive).end = std::max(arrival, span(receive).start);
  causes_[static_cast<size_t>(receive)] = send;
  const ItemIndex index = resolved(receive).item;
  ItemRun& to = item(index);
  const bool backward = action_of(receive).op == ActionOp::kReceiveBackward;
  (backward ? to.missing_backward : to.missing_forward) -= action_of(receive).range.size();
  Ticks& ready = backward ? to.backward_ready : to.forward_ready;
  ActionIndex& cause = backward ? to.backward_cause : to.forward_cause;
  if (arrival >= ready) {
    ready = arrival;
    cause = send;
  }
  const size_t program = program_of(receive);
  ProgramRun& run = programs_[program];
  if (run.waits_for != index || run.waits_backward != backward) return;
  if ((backward ? to.missing_backward : to.missing_forward) > 0) return;
  run.waits_for = -1;
  // The other half of an overlapped pair may have to wait still.
  if (run_compute(program, run.next, action_of(run.next)) == Outcome::kWait) return;
  leave_slot(run.next);
  ++run.next;
}

/// Whether the action's slot is free or its item's already; takes it. Actions without slots always fit.
bool Simulator::enter_slot(ActionIndex at, ItemRun& item) {
  const int32_t slot = resolved(at).slot;
  if (slot < 0) return item.slot < 0;
  ItemIndex& occupant = occupant_[static_cast<size_t>(slot)];
  if (occupant >= 0) return occupant == resolved(at).item;
  if (item.slot >= 0) return false;
  occupant = resolved(at).item;
  item.slot = slot;
  return true;
}

void Simulator::leave_slot(ActionIndex at) {
  if (resolved(at).item < 0) return;
  ItemRun& done = item(resolved(at).item);
  if (--done.actions_left == 0 && done.slot >= 0) occupant_[static_cast<size_t>(done.slot)] = -1;
}

}  // namespace graphpipe::scheduler
