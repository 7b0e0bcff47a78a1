#pragma once
// The rows of a program: what one device does, in order. Written into generated programs as data and run by
// the runtime's executor; the compiler's ir::Action is the same row. std only.

#include <cstdint>

namespace graphpipe::wire {

enum class ActionOp : uint8_t {
  kForward,         // F: forward of an item
  kBackward,        // B: input gradients, then weight gradients, of an item
  kInputGradient,   // I
  kWeightGradient,  // W
  kRecompute,       // R: forward again, from the boundary inputs, before I or B
  kSendForward,     // sends the rows [first, last) of an edge's value to the stage below
  kReceiveForward,
  kSendBackward,    // sends the rows of an edge's gradient to the stage above
  kReceiveBackward,
  kReduceGradient,  // sums a stage's weight gradients over replicas and over the copies of shared groups
  kNorm,            // global gradient norm: partial sums, then the total to all
  kStep,            // optimizer step: version -> version + 1
  kPublish,         // makes a weight version the one that forwards read
  kFreeVersion,
};
inline constexpr int kActionOpCount = 14;

/// Half-open range of the step's samples.
struct SampleRange {
  int64_t first = 0;
  int64_t last = 0;
  constexpr int64_t size() const { return last - first; }
  constexpr bool empty() const { return last <= first; }
  constexpr bool operator==(const SampleRange&) const = default;
};

constexpr SampleRange intersect(SampleRange a, SampleRange b) {
  const int64_t first = a.first > b.first ? a.first : b.first;
  const int64_t last = a.last < b.last ? a.last : b.last;
  return {first, last > first ? last : first};
}

/// Which lane of a device an action occupies. Actions of one stream run in order.
enum class Stream : uint8_t { kCompute, kCommunication, kCollective };

struct ActionRow {
  ActionOp op = ActionOp::kForward;
  Stream stream = Stream::kCompute;
  int32_t stage = -1;
  int32_t replica = 0;
  /// The samples of the item (compute), of the message (transfers), of the update (reduce, step, publish), of the
  /// step (norm).
  SampleRange range;
  /// Index into the plan's transfers, for sends and receives; else -1.
  int32_t edge = -1;
  /// The other end's replica, for sends and receives; else -1.
  int32_t peer_replica = -1;
  /// Ring slot that holds the item's activations, for compute and transfers.
  int32_t slot = -1;
  /// Weight version that compute actions read, that a step makes, that PUBLISH shows or that FREE drops.
  int32_t version = 0;
  /// Forms an overlapped pair with the next compute action of its list: a forward and a backward of different
  /// micro-batches whose kernels and transfers interleave (DualPipe). A list may run them one by one.
  bool overlaps_next = false;
  constexpr bool operator==(const ActionRow&) const = default;
};

constexpr bool is_send(ActionOp op) { return op == ActionOp::kSendForward || op == ActionOp::kSendBackward; }
constexpr bool is_receive(ActionOp op) { return op == ActionOp::kReceiveForward || op == ActionOp::kReceiveBackward; }
constexpr bool is_compute(ActionOp op) { return op <= ActionOp::kRecompute; }

/// "F", "B", "I", "W", "R", "SEND_F", "RECV_F", "SEND_B", "RECV_B", "REDUCE", "NORM", "STEP", "PUBLISH", "FREE".
constexpr const char* action_name(ActionOp op) {
  constexpr const char* kNames[kActionOpCount] = {"F",      "B",      "I",      "W",    "R",    "SEND_F",  "RECV_F",
                                                  "SEND_B", "RECV_B", "REDUCE", "NORM", "STEP", "PUBLISH", "FREE"};
  return kNames[static_cast<int>(op)];
}

}  // namespace graphpipe::wire
