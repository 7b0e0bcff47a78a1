#pragma once
// The all-reduce of buckets over a ring: each replica sends to the next one only, every bucket in 2 (d-1) rounds of one
// chunk. In the first d-1 rounds a replica adds what it receives to its own chunk (reduce-scatter), in the others it
// stores what it receives (all-gather). So each replica sends and receives 2 (d-1)/d of the bytes, whatever d is, and
// adds (d-1)/d of them; each link between neighbours is used in one direction. Several buckets are in flight at once,
// so that one is transferred while another is added.
//
// (Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009.)
//
// The messages of a ring have one order, which all replicas know: wire::kBucketsInFlight buckets at a time, round by
// round. Sums are made where the tensors lie: float32 on hosts is added as the chunks arrive, piece by piece; other
// types are received into a separate buffer first. With a transport that uses host memory, single chunks of a GPU's
// buckets are staged through the host.

#include <ATen/core/Tensor.h>

#include <deque>
#include <optional>
#include <vector>

#include "runtime/collectives/buckets.h"
#include "runtime/device/device.h"
#include "runtime/executor/channels.h"

namespace graphpipe::runtime {

/// A replica's position: it sends to `next`, and receives from `previous`.
struct RingPosition {
  int32_t stage = -1;
  int32_t position = 0, size = 1;
  int32_t replica = 0, next = 0, previous = 0;
};
RingPosition ring_position(const PlanTable& plan, int32_t stage, int32_t replica);
ChannelKey ring_channel(int32_t stage, int32_t from, int32_t to);

class RingAllReduce {
 public:
  RingAllReduce(Channels& channels, const Device& device, const RingPosition& place, std::span<const Bucket> buckets)
      : channels_(channels), device_(device), place_(place), buckets_(buckets) {}

  /// Prepares for another all-reduce. Needs: done().
  void start(int64_t step, wire::SampleRange update);
  /// This replica's gradients of the next bucket, flat and contiguous; the sum replaces them in place.
  void offer(at::Tensor bucket) { values_.push_back(std::move(bucket)); }
  /// Adds what has arrived and posts what follows. Returns whether there was any progress.
  bool advance();
  /// Whether messages to or from a neighbour move while this rank computes. Ranks of one ring may differ: each takes
  /// part from when it begins.
  bool moves_alone() const;
  /// Whether all sums are complete and no message is in flight; the buckets have been released by then.
  bool done() const { return !started_; }
  /// The rank whose message it waits for, or -1.
  int32_t waits_for() const;

 private:
  /// Position in the ring's order of messages.
  struct Turn {
    size_t bucket = 0;
    int32_t round = 0;
  };
  struct Receipt {
    PendingMessage pending;
    Turn turn;
    at::Tensor memory, landing;  // outside the bucket, if it cannot be received in place
  };

  int32_t rounds() const { return 2 * (place_.size - 1); }
  size_t turns() const { return buckets_.size() * static_cast<size_t>(rounds()); }
  Turn turn(size_t index) const;
  /// The number of buckets that are interleaved with this one, round by round.
  size_t group_size(size_t bucket) const;
  /// The part of the bucket that is sent, or received, in the round.
  at::Tensor chunk(const Turn& turn, bool is_send) const;
  bool adds(const Turn& turn) const { return turn.round < place_.size - 1; }
  bool take_receipts();
  bool post_sends();
  bool post_receives();
  void take(const Receipt& receipt);
  void land_beside(Receipt& receipt, const at::Tensor& target, bool on_device);
  void let_go();

  Channels& channels_;
  const Device& device_;
  RingPosition place_;
  std::span<const Bucket> buckets_;
  std::vector<at::Tensor> values_;  // of the buckets offered so far
  bool started_ = false;
  int64_t step_ = 0;
  wire::SampleRange update_;
  size_t next_send_ = 0, next_receive_ = 0;  // turns
  size_t received_ = 0;                      // turns whose chunks have been added or copied
  std::deque<PendingMessage> sends_;         // in flight
  std::deque<Receipt> receipts_;             // in flight, by ascending turn
  std::vector<at::Tensor> idle_memory_;      // for reuse
};

}  // namespace graphpipe::runtime
