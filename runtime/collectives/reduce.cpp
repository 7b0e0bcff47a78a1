#include "runtime/collectives/reduce.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>

#include "runtime/executor/resolve.h"
#include "support/check.h"

namespace graphpipe::runtime {
namespace {

int32_t replicas_of(const PlanTable& plan, int32_t stage) { return plan.stages[static_cast<size_t>(stage)].replicas; }

// The index of the placement's row: distinguishes ends that lie on one device.
int32_t place_of(const PlanTable& plan, int32_t stage, int32_t replica) {
  const auto found = std::ranges::find_if(
      plan.placement, [&](const PlacementRow& row) { return row.stage == stage && row.replica == replica; });
  GP_CHECK(found != plan.placement.end());
  return static_cast<int32_t>(found - plan.placement.begin());
}

struct ShareEnd {
  int32_t stage = -1, replica = 0;
};

ShareLink share_link(const PlanTable& plan, int32_t group, const ShareEnd& from, const ShareEnd& to) {
  return {.key = {ChannelKind::kShare, group, place_of(plan, from.stage, from.replica),
                  place_of(plan, to.stage, to.replica)},
          .from_rank = device_of(plan, from.stage, from.replica),
          .to_rank = device_of(plan, to.stage, to.replica)};
}

}  // namespace

std::vector<ShareLink> share_links(const PlanTable& plan, const GroupRow& group, int32_t stage, int32_t replica) {
  std::vector<ShareLink> links;
  const ShareEnd own{stage, replica};
  for (const int32_t other : group.stages) {
    if (other == stage) continue;
    ShareLink receive = share_link(plan, group.group, {other, replica % replicas_of(plan, other)}, own);
    receive.stage = other;
    links.push_back(receive);
    for (int32_t to = replica; to < replicas_of(plan, other); to += replicas_of(plan, stage)) {
      ShareLink send = share_link(plan, group.group, own, {other, to});
      send.stage = other;
      send.is_send = true;
      links.push_back(send);
    }
  }
  return links;
}

Reduction::Reduction(const PlanTable& plan, Channels& channels, const Device& device, StageState& state,
                     wire::SampleRange update, const Reduction* earlier)
    : plan_(plan),
      channels_(channels),
      device_(device),
      state_(state),
      update_(update),
      earlier_(earlier),
      buckets_(buckets_of(*state.entry, replicas_of(plan, state.entry->stage))),
      ring_(channels, device, ring_position(plan, state.entry->stage, state.replica), buckets_) {
  for (size_t index : state.trainable)
    if (const GroupRow* group = shared_group(plan, state.entry->params[index].group)) shared_.push_back({index, group});
  std::ranges::sort(shared_, {}, [](const Shared& s) { return s.group->group; });
}

void Reduction::reset() {
  GP_CHECK(finished());
  phase_ = Phase::kIdle;
  complete_.clear();
  all_complete_ = false;
  offered_ = 0;
}

void Reduction::begin_early(int64_t step) {
  GP_CHECK(can_begin_early());
  start(step);
}

void Reduction::start(int64_t step) {
  gradients_ = &gradients_of(state_, update_.first);
  complete_.assign(gradients_->size(), false);
  step_ = step;
  phase_ = Phase::kReplicas;
  ring_.start(step, update_);
}

void Reduction::note_complete(std::span<const int32_t> params) {
  for (const int32_t index : params) complete_[static_cast<size_t>(index)] = true;
  offer_buckets();
  advance();
}

void Reduction::begin(int64_t step) {
  if (begun()) return;
  if (phase_ == Phase::kIdle) start(step);
  all_complete_ = true;
  complete_gradients(plan_, state_, *gradients_);
  complete_.assign(complete_.size(), true);
  offer_buckets();
  advance();
}

void Reduction::offer_buckets() {
  // All rows of a table come when no item is left.
  const auto is_complete = [&](const BucketPart& part) {
    const at::Tensor& gradient = (*gradients_)[part.parameter];
    return complete_[part.parameter] && (all_complete_ || !gradient.defined() || !gradient.is_sparse());
  };
  for (; offered_ < buckets_.size() && std::ranges::all_of(buckets_[offered_].parts, is_complete); ++offered_) {
    for (const BucketPart& part : buckets_[offered_].parts)
      complete_gradient(plan_, state_, part.parameter, *gradients_);
    ring_.offer(bucket_value(buckets_[offered_]));
  }
}

// The bucket of a split parameter is a slice of its gradient; whole parameters are copied into their bucket.
at::Tensor Reduction::bucket_value(const Bucket& bucket) {
  const BucketPart& front = bucket.parts.front();
  if (bucket.parts.size() == 1) return (*gradients_)[front.parameter].view(-1).narrow(0, front.first, front.count);
  at::Tensor flat = at::empty({bucket.elements}, (*gradients_)[front.parameter].options());
  int64_t next = 0;
  for (const BucketPart& part : bucket.parts) {
    at::Tensor& gradient = (*gradients_)[part.parameter];
    GP_CHECK(gradient.scalar_type() == flat.scalar_type() && gradient.numel() == part.count);
    const at::Tensor place = flat.narrow(0, next, part.count).view(gradient.sizes());
    place.copy_(gradient);
    gradient = place;
    next += part.count;
  }
  return flat;
}

bool Reduction::advance() {
  if (finished()) return false;
  if (phase_ == Phase::kReplicas) {
    if (earlier_ != nullptr && !earlier_->replicas_are_summed()) return false;
    const bool moved = ring_.advance();
    if (!ring_.done()) return moved;
    phase_ = Phase::kCopies;
    begin_copies();
  }
  if (!copies_are_here()) return false;
  add_copies();
  phase_ = Phase::kDone;
  return true;
}

int32_t Reduction::waits_for() const {
  if (phase_ == Phase::kReplicas) {
    const bool queued = earlier_ != nullptr && !earlier_->replicas_are_summed();
    return queued ? earlier_->waits_for() : ring_.waits_for();
  }
  for (const PendingMessage& pending : pending_)
    if (!pending.done()) return pending.peer;
  return -1;
}

bool Reduction::copies_are_here() const {
  return std::ranges::all_of(pending_, [](const PendingMessage& pending) { return pending.done(); });
}

void Reduction::begin_copies() {
  for (size_t shared = 0; shared < shared_.size(); ++shared) {
    const at::Tensor& own = (*gradients_)[shared_[shared].parameter];
    for (const ShareLink& link : share_links(plan_, *shared_[shared].group, state_.entry->stage, state_.replica)) {
      const bool on_device = channels_.takes_device_memory(link.key);
      if (link.is_send) {
        channels_.send(pending_.emplace_back(), link.key, on_device ? own : device_.download(own), step_, update_, 0);
        continue;
      }
      const c10::Device where = on_device ? own.device() : c10::Device(c10::DeviceType::CPU);
      copies_.push_back({shared, link.stage, at::empty_like(own, own.options().device(where))});
      channels_.receive(pending_.emplace_back(), link.key, copies_.back().sum, step_, update_, 0);
    }
  }
}

void Reduction::add_copies() {
  pending_.clear();  // before the gradients that they send are written
  for (size_t shared = 0; shared < shared_.size(); ++shared) {
    at::Tensor& own = (*gradients_)[shared_[shared].parameter];
    at::Tensor total;
    for (const int32_t stage : shared_[shared].group->stages) {
      at::Tensor sum = own;
      if (stage != state_.entry->stage) {
        sum = device_.upload(copies_.front().sum);
        copies_.pop_front();
      }
      if (total.defined()) total.add_(sum);
      else total = sum;
    }
    own = total;
  }
}

}  // namespace graphpipe::runtime
