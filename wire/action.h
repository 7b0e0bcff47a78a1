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
  kSendBackward,  // sends the rows of an edge's gradient to the stage above
  kReceiveBackward,
  kReduceGradient,  // sums a stage's weight gradients over replicas and over the copies of shared groups
  kNorm,            // global gradient norm: partial sums, then the total to all
  kStep,            // optimizer step: version -> version + 1
  kPublish,         // makes a weight version the one that forwards read
  kFreeVersion,
  kSlice,        // cuts the rows [first, last) out of an item's value, or gradient, for the send right behind it
  kConcatenate,  // joins the received pieces of an edge to the value, or gradient, of the item that reads it next
  kAllocate,     // takes the item's slot before anything else does
  kRelease,      // gives the item's slot back; nothing of the item comes later
  kOffload,      // moves what the item's slot holds to the host's memory
  kReload,       // and back
  kFlush,        // no item of the stage's replica may cross it
  kTraceMark,    // does nothing: a mark in traces
};
inline constexpr int kActionOpCount = 22;

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
  /// The samples of the item (compute, concatenation, memory), of the message (transfers, slices), of the update
  /// (reduce, step, publish), of the step (norm), of what a flush ends.
  SampleRange range;
  /// Index into the plan's transfers, for sends, receives, slices and concatenations; else -1.
  int32_t edge = -1;
  /// The other end's replica, for sends and receives; else -1.
  int32_t peer_replica = -1;
  /// Ring slot that holds the item's activations, for all actions on items.
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
constexpr bool is_message(ActionOp op) { return is_send(op) || is_receive(op); }
constexpr bool is_compute(ActionOp op) { return op <= ActionOp::kRecompute; }
/// The first compute action of an item's backward, which waits for the gradients of its outputs.
constexpr bool makes_input_gradient(ActionOp op) { return op == ActionOp::kBackward || op == ActionOp::kInputGradient; }
/// The last compute action of an item that has a backward.
constexpr bool makes_weight_gradients(ActionOp op) {
  return op == ActionOp::kBackward || op == ActionOp::kWeightGradient;
}
/// Whether the action works in the slot of one item: compute, transfers, slices, concatenations and memory.
constexpr bool is_of_item(ActionOp op) {
  return op <= ActionOp::kReceiveBackward || (op >= ActionOp::kSlice && op <= ActionOp::kReload);
}

/// The lane that an action of this kind occupies where its row does not say another.
constexpr Stream stream_of(ActionOp op) {
  if (is_message(op) || op == ActionOp::kSlice || op == ActionOp::kConcatenate) return Stream::kCommunication;
  if (op == ActionOp::kReduceGradient || op == ActionOp::kNorm) return Stream::kCollective;
  return Stream::kCompute;
}

/// "F", "B", "I", "W", "R", "SEND_F", "RECV_F", "SEND_B", "RECV_B", "REDUCE", "NORM", "STEP", "PUBLISH", "FREE" (of a
/// weight version), "SLICE", "CONCAT", "ALLOC", "RELEASE", "OFFLOAD", "RELOAD", "FLUSH", "TRACE".
constexpr const char* action_name(ActionOp op) {
  constexpr const char* kNames[kActionOpCount] = {
      "F",    "B",       "I",    "W",     "R",      "SEND_F", "RECV_F",  "SEND_B",  "RECV_B", "REDUCE", "NORM",
      "STEP", "PUBLISH", "FREE", "SLICE", "CONCAT", "ALLOC",  "RELEASE", "OFFLOAD", "RELOAD", "FLUSH",  "TRACE"};
  return kNames[static_cast<int>(op)];
}

}  // namespace graphpipe::wire
