// Transfers, their links, and the ring slots that they enter.

#include <algorithm>

#include "scheduler/simulate/simulator.h"

namespace graphpipe::scheduler {

/// Whether the producing action of a send has run.
bool Simulator::is_available(const Action& action, const ItemRun& item) const {
  return item.state >= (action.op == ActionOp::kSendForward ? ItemState::kForwardDone : ItemState::kInputGradientDone);
}

Simulator::Outcome Simulator::run_send(size_t program, RowIndex row, const Action& action) {
  ItemRun& sent = item(resolved(row).item);
  if (!is_available(action, sent)) return fail(row, "sends what has not been computed");
  if (!enter_slot(row, sent)) return fail(row, "names a slot that is not its item's");
  ProgramRun& run = programs_[program];
  const bool remote = resolved(row).link >= 0;
  if (options_.rendezvous && remote) return meet(program, row) ? Outcome::kLater : Outcome::kWait;
  transfer(row, run.now + resolved(row).busy, run.last_compute);
  if (reached_[static_cast<size_t>(resolved(row).partner)]) deliver(row);
  reached_[static_cast<size_t>(row)] = 1;
  return keep_busy(program, row);
}

/// A message takes a moment of its device's compute, at both ends.
Simulator::Outcome Simulator::keep_busy(size_t program, RowIndex row) {
  if (resolved(row).busy == Ticks(0)) return Outcome::kNext;
  queue_.push({programs_[program].now + resolved(row).busy, program});
  return Outcome::kLater;
}

Simulator::Outcome Simulator::run_receive(size_t program, RowIndex row, const Action& action) {
  ItemRun& received = item(resolved(row).item);
  const bool forward = action.op == ActionOp::kReceiveForward;
  if (received.state != (forward ? ItemState::kNew : ItemState::kForwardDone))
    return fail(row,
                forward ? "comes after the forward that needs it" : "comes outside its item's forward and backward");
  if (!enter_slot(row, received)) return fail(row, "is posted into a slot that another item still uses");
  const RowIndex send = resolved(row).partner;
  if (options_.rendezvous && resolved(send).link >= 0) return meet(program, row) ? Outcome::kLater : Outcome::kWait;
  span(row).start = programs_[program].now;
  reached_[static_cast<size_t>(row)] = 1;
  if (reached_[static_cast<size_t>(send)]) deliver(send);
  return keep_busy(program, row);
}

/// Rendezvous: the first end waits; when the second arrives both go on at the arrival of the message.
bool Simulator::meet(size_t program, RowIndex row) {
  ProgramRun& run = programs_[program];
  const RowIndex partner = resolved(row).partner;
  reached_[static_cast<size_t>(row)] = 1;
  span(row).start = run.now;
  if (!reached_[static_cast<size_t>(partner)]) return false;
  const RowIndex send = ir::is_send(action_of(row).op) ? row : partner;
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

void Simulator::transfer(RowIndex send, Ticks from, RowIndex cause) {
  const ResolvedRow& row = resolved(send);
  Ticks start = from;
  if (row.link >= 0) {
    Link& link = links_[static_cast<size_t>(row.link)];
    if (link.free > start) {
      start = link.free;
      cause = link.last;
    }
    link.free = start + row.duration;
    link.last = send;
  }
  span(send) = {start, start + row.duration + row.latency};
  causes_[static_cast<size_t>(send)] = cause;
}

/// Hands the message to the receiving item and wakes its program where that was the last one it waited for.
void Simulator::deliver(RowIndex send) {
  const RowIndex receive = resolved(send).partner;
  const Ticks arrival = span(send).end;
  span(receive).end = std::max(arrival, span(receive).start);
  causes_[static_cast<size_t>(receive)] = send;
  const ItemIndex index = resolved(receive).item;
  ItemRun& to = item(index);
  const bool backward = action_of(receive).op == ActionOp::kReceiveBackward;
  (backward ? to.missing_backward : to.missing_forward) -= action_of(receive).range.size();
  Ticks& ready = backward ? to.backward_ready : to.forward_ready;
  RowIndex& cause = backward ? to.backward_cause : to.forward_cause;
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
bool Simulator::enter_slot(RowIndex row, ItemRun& item) {
  const int32_t slot = resolved(row).slot;
  if (slot < 0) return item.slot < 0;
  ItemIndex& occupant = occupant_[static_cast<size_t>(slot)];
  if (occupant >= 0) return occupant == resolved(row).item;
  if (item.slot >= 0) return false;
  occupant = resolved(row).item;
  item.slot = slot;
  return true;
}

void Simulator::leave_slot(RowIndex row) {
  if (resolved(row).item < 0) return;
  ItemRun& done = item(resolved(row).item);
  if (--done.rows_left == 0 && done.slot >= 0) occupant_[static_cast<size_t>(done.slot)] = -1;
}

}  // namespace graphpipe::scheduler
