#pragma once
// Lists of a rank that serves two streams of micro-batches: the two chunks of a V (ZB-V, DualPipeV), or the two
// directions of a bidirectional pipeline (DualPipe).

#include <array>

#include "scheduler/policies/compute_order.h"

namespace graphpipe::scheduler {

/// The micro-batches [first, first + count) of one replica of a stage.
struct MicroBatchStream {
  StageId stage;
  int replica = 0;
  int64_t first = 0;
  int64_t count = 0;
};

/// Appends a rank's actions; each kind takes the stream's micro-batches in ascending order. What goes beyond a stream's
/// last micro-batch is counted and left out, so a rule may be run for more micro-batches than there are.
class TwoStreamWriter {
 public:
  TwoStreamWriter(const StageGraph& graph, const std::array<MicroBatchStream, 2>& streams)
      : graph_(graph), streams_(streams) {}

  void forward(size_t stream) { add(ActionOp::kForward, stream, forwards_[stream]++); }
  /// Input and weight gradient as one action.
  void backward(size_t stream);
  void input_gradient(size_t stream);
  /// The oldest of this stream that is missing.
  void weight_gradient(size_t stream) { add(ActionOp::kWeightGradient, stream, weight_gradients_[stream]++); }
  /// The oldest input gradient of either stream that waits for its weight gradient.
  void oldest_weight_gradient();
  /// A forward and a whole backward in one slot.
  void overlapped(size_t forward_stream, size_t backward_stream);

  int64_t forwards(size_t stream) const { return forwards_[stream]; }
  int64_t weight_gradients_left(size_t stream) const { return input_gradients_[stream] - weight_gradients_[stream]; }
  std::vector<Action> take() { return std::move(list_); }

 private:
  void add(ActionOp op, size_t stream, int64_t index);

  const StageGraph& graph_;
  const std::array<MicroBatchStream, 2> streams_;
  std::array<int64_t, 2> forwards_{}, input_gradients_{}, weight_gradients_{};
  /// Streams of the input gradients, in their order.
  std::vector<size_t> split_;
  size_t next_split_ = 0;
  std::vector<Action> list_;
};

}  // namespace graphpipe::scheduler
