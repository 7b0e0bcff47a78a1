#include "runtime/collectives/ring_all_reduce.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "support/check.h"

namespace graphpipe::runtime {
namespace {

// Receives that are posted ahead, before the first of them is consumed.
constexpr size_t kReceivesAhead = 2 * wire::kBucketsInFlight;

}  // namespace

RingPosition ring_position(const PlanTable& plan, int32_t stage, int32_t replica) {
  const std::vector<int32_t> ring = ring_of(plan, stage);
  const auto size = static_cast<int32_t>(ring.size());
  const auto position = static_cast<int32_t>(std::ranges::find(ring, replica) - ring.begin());
  GP_CHECK(position < size);
  return {.stage = stage,
          .position = position,
          .size = size,
          .replica = replica,
          .next = ring[static_cast<size_t>((position + 1) % size)],
          .previous = ring[static_cast<size_t>((position + size - 1) % size)]};
}

ChannelKey ring_channel(int32_t stage, int32_t from, int32_t to) { return {ChannelKind::kReduce, stage, from, to}; }

void RingAllReduce::start(int64_t step, wire::SampleRange update) {
  GP_CHECK(done());
  started_ = true;
  step_ = step;
  update_ = update;
  next_send_ = next_receive_ = received_ = 0;
}

bool RingAllReduce::moves_alone() const {
  return channels_.moves_alone(ring_channel(place_.stage, place_.replica, place_.next)) ||
         channels_.moves_alone(ring_channel(place_.stage, place_.previous, place_.replica));
}

size_t RingAllReduce::group_size(size_t bucket) const {
  constexpr auto kSize = static_cast<size_t>(wire::kBucketsInFlight);
  return std::min(kSize, buckets_.size() - bucket / kSize * kSize);
}

// Within a group all buckets do round 0, then all do round 1, and so on.
RingAllReduce::Turn RingAllReduce::turn(size_t index) const {
  constexpr auto kSize = static_cast<size_t>(wire::kBucketsInFlight);
  const size_t per_group = kSize * static_cast<size_t>(rounds());
  const size_t first = index / per_group * kSize, place = index % per_group, size = group_size(first);
  return {first + place % size, static_cast<int32_t>(place / size)};
}

at::Tensor RingAllReduce::chunk(const Turn& turn, bool is_send) const {
  const int32_t behind = turn.round + (is_send ? 0 : 1);
  const int32_t index = (place_.position - behind % place_.size + place_.size) % place_.size;
  const ElementRange range = chunk_of(buckets_[turn.bucket], index, place_.size);
  return values_[turn.bucket].narrow(0, range.first, range.count);
}

bool RingAllReduce::advance() {
  if (!started_) return false;
  bool moved_any = false;
  for (bool moved = true; moved; moved_any |= moved) {
    moved = take_receipts();
    moved |= post_sends();
    moved |= post_receives();
  }
  let_go();
  return moved_any;
}

void RingAllReduce::let_go() {
  const auto is_done = [](const PendingMessage& pending) { return pending.done(); };
  if (received_ < turns() || next_send_ < turns() || !std::ranges::all_of(sends_, is_done)) return;
  started_ = false;
  values_.clear();
  idle_memory_.clear();
  sends_.clear();
}

int32_t RingAllReduce::waits_for() const {
  if (!receipts_.empty()) return receipts_.front().pending.peer;
  for (const PendingMessage& pending : sends_)
    if (!pending.done()) return pending.peer;
  return -1;
}

// What is sent in a round was received in the previous round.
bool RingAllReduce::post_sends() {
  bool moved = false;
  for (; next_send_ < turns(); ++next_send_, moved = true) {
    const Turn next = turn(next_send_);
    if (next.bucket >= values_.size()) break;
    if (next.round > 0 && received_ + group_size(next.bucket) <= next_send_) break;
    const at::Tensor rows = chunk(next, true);
    if (rows.numel() == 0) continue;  // the other end knows
    const ChannelKey key = ring_channel(place_.stage, place_.replica, place_.next);
    channels_.send(sends_.emplace_back(), key, channels_.takes_device_memory(key) ? rows : device_.download(rows),
                   step_, update_, static_cast<int32_t>(next_send_));
  }
  while (!sends_.empty() && sends_.front().done()) sends_.pop_front();
  return moved;
}

bool RingAllReduce::post_receives() {
  bool moved = false;
  for (; next_receive_ < turns() && receipts_.size() < kReceivesAhead; ++next_receive_, moved = true) {
    const Turn next = turn(next_receive_);
    if (next.bucket >= values_.size()) break;
    Receipt& receipt = receipts_.emplace_back();
    receipt.turn = next;
    const at::Tensor target = chunk(next, false);
    if (target.numel() == 0) continue;
    const ChannelKey key = ring_channel(place_.stage, place_.previous, place_.replica);
    const auto part = static_cast<int32_t>(next_receive_);
    if (adds(next) && channels_.takes_sums(key, target)) {
      channels_.receive_sum(receipt.pending, key, target, step_, update_, part);
      continue;
    }
    land_beside(receipt, target, channels_.takes_device_memory(key));
    channels_.receive(receipt.pending, key, receipt.landing.defined() ? receipt.landing : target, step_, update_, part);
  }
  return moved;
}

// A total arrives only after all replicas have read this one's share of it, so it is received into the memory of the
// share.
void RingAllReduce::land_beside(Receipt& receipt, const at::Tensor& target, bool on_device) {
  const bool elsewhere = !device_.is_host() && !on_device;
  if (!adds(receipt.turn) && !elsewhere) return;
  const auto found = std::ranges::find_if(idle_memory_, [&](const at::Tensor& idle) {
    return idle.scalar_type() == target.scalar_type() && idle.numel() >= target.numel();
  });
  if (found != idle_memory_.end()) {
    receipt.memory = *found;
    idle_memory_.erase(found);
  } else {
    const c10::Device where = elsewhere ? c10::Device(c10::DeviceType::CPU) : target.device();
    // One element more than the smallest chunk: large enough for every chunk of the bucket.
    const int64_t largest = buckets_[receipt.turn.bucket].elements / place_.size + 1;
    receipt.memory = at::empty({largest}, target.options().device(where));
  }
  receipt.landing = receipt.memory.narrow(0, 0, target.numel());
}

bool RingAllReduce::take_receipts() {
  bool moved = false;
  while (!receipts_.empty() && receipts_.front().pending.done()) {
    take(receipts_.front());
    receipts_.pop_front();
    ++received_;
    moved = true;
  }
  return moved;
}

void RingAllReduce::take(const Receipt& receipt) {
  if (!receipt.landing.defined()) return;
  at::Tensor target = chunk(receipt.turn, false);
  const at::Tensor arrived = device_.upload(receipt.landing);
  if (adds(receipt.turn)) target.add_(arrived);
  else target.copy_(arrived);
  idle_memory_.push_back(receipt.memory);
}

}  // namespace graphpipe::runtime
