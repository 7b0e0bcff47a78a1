#include "runtime/collectives/reduce.h"

#include <ATen/ops/empty_like.h>

#include <algorithm>

#include "runtime/executor/resolve.h"
#include "support/check.h"

namespace graphpipe::runtime {

Reduction::Reduction(const PlanTable& plan, Channels& channels, const Device& device, StageState& state,
                     wire::SampleRange update)
    : plan_(plan),
      channels_(channels),
      device_(device),
      state_(state),
      update_(update),
      replicas_(plan.stages[static_cast<size_t>(state.entry->stage)].replicas) {
  for (size_t index : state.trainable)
    if (const GroupRow* group = shared_group(plan, state.entry->params[index].group)) shared_.push_back({index, group});
  std::ranges::sort(shared_, {}, [](const Shared& s) { return s.group->group; });
}

PendingMessage& Reduction::new_message() { return pending_.emplace_back(); }

bool Reduction::all_done() const {
  return std::ranges::all_of(pending_, [](const PendingMessage& pending) { return pending.done(); });
}

int32_t Reduction::waits_for() const {
  for (const PendingMessage& pending : pending_)
    if (!pending.done()) return pending.peer;
  return -1;
}

bool Reduction::finished() const { return phase_ == Phase::kIdle || phase_ == Phase::kDone; }

void Reduction::reset() {
  GP_CHECK(finished());
  phase_ = Phase::kIdle;
}

void Reduction::begin(int64_t step) {
  if (begun()) return;
  gradients_ = &gradients_of(state_, update_.first);
  complete_gradients(state_, *gradients_);
  move_gradients(true);
  step_ = step;
  next_replica_ = 1;
  enter(Phase::kReplicas);
  advance();
}

// Starts a phase: posts all its messages. A phase is over when they are done.
void Reduction::enter(Phase phase) {
  phase_ = phase;
  pending_.clear();
  scratch_.clear();
  const int32_t stage = state_.entry->stage;
  if (phase == Phase::kReplicas && !is_root() && !state_.trainable.empty()) {
    for (size_t index : state_.trainable)
      channels_.send(new_message(), {ChannelKind::kReduceUp, stage, state_.replica, 0}, (*gradients_)[index], step_,
                     update_, static_cast<int32_t>(index));
    // The total arrives after replica 0 has read all of the share, so the share's memory takes it.
    for (size_t index : state_.trainable)
      channels_.receive(new_message(), {ChannelKind::kReduceDown, stage, 0, state_.replica}, (*gradients_)[index],
                        step_, update_, static_cast<int32_t>(index));
  }
  if (phase == Phase::kReplicas && is_root()) receive_replica();
  if (phase == Phase::kCopies) begin_copies();
  if (phase == Phase::kBroadcast) broadcast();
  if (phase == Phase::kDone) move_gradients(false);
}

// Sums are made on the CPU, in a fixed order, wherever the stage computes.
void Reduction::move_gradients(bool to_host) {
  if (device_.is_host() || !has_peers()) return;
  for (size_t index : state_.trainable) {
    at::Tensor& gradient = (*gradients_)[index];
    gradient = to_host ? device_.download(gradient) : device_.upload(gradient);
  }
}

bool Reduction::advance() {
  if (finished() || !all_done()) return false;
  switch (phase_) {
    case Phase::kReplicas:
      if (!is_root()) {
        enter(Phase::kDone);
        break;
      }
      add_scratch();
      if (next_replica_ < replicas_ && !state_.trainable.empty() && ++next_replica_ < replicas_)
        enter(Phase::kReplicas);
      else enter(Phase::kCopies);
      break;
    case Phase::kCopies:
      add_scratch();
      enter(Phase::kBroadcast);
      break;
    case Phase::kBroadcast:
      enter(Phase::kDone);
      break;
    case Phase::kIdle:
    case Phase::kDone:
      return false;
  }
  advance();
  return true;
}

void Reduction::post_scratch(const ChannelKey& key, size_t parameter, int32_t part) {
  scratch_.push_back({at::empty_like((*gradients_)[parameter]), parameter});
  channels_.receive(new_message(), key, scratch_.back().tensor, step_, update_, part);
}

// One replica at a time: the scratch is never larger than one set of gradients.
void Reduction::receive_replica() {
  if (next_replica_ >= replicas_) return;
  for (size_t index : state_.trainable)
    post_scratch({ChannelKind::kReduceUp, state_.entry->stage, next_replica_, 0}, index, static_cast<int32_t>(index));
}

void Reduction::add_scratch() {
  for (const Scratch& scratch : scratch_) (*gradients_)[scratch.parameter].add_(scratch.tensor);
}

// The first stage of a group receives the sums of the others, ascending; the others send theirs and get the total.
void Reduction::begin_copies() {
  for (const auto& [parameter, group] : shared_) {
    const int32_t first = group->stages.front(), stage = state_.entry->stage;
    if (stage == first) {
      for (int32_t other : group->stages.subspan(1))
        post_scratch({ChannelKind::kShareUp, group->group, other, first}, parameter, 0);
    } else {
      channels_.send(new_message(), {ChannelKind::kShareUp, group->group, stage, first}, (*gradients_)[parameter],
                     step_, update_, 0);
      channels_.receive(new_message(), {ChannelKind::kShareDown, group->group, first, stage}, (*gradients_)[parameter],
                        step_, update_, 0);
    }
  }
}

void Reduction::broadcast() {
  const int32_t stage = state_.entry->stage;
  for (const auto& [parameter, group] : shared_) {
    if (stage != group->stages.front()) continue;
    for (int32_t other : group->stages.subspan(1))
      channels_.send(new_message(), {ChannelKind::kShareDown, group->group, stage, other}, (*gradients_)[parameter],
                     step_, update_, 0);
  }
  for (int32_t replica = 1; replica < replicas_; ++replica)
    for (size_t index : state_.trainable)
      channels_.send(new_message(), {ChannelKind::kReduceDown, stage, 0, replica}, (*gradients_)[index], step_, update_,
                     static_cast<int32_t>(index));
}

}  // namespace graphpipe::runtime
