#include "scheduler/policies/two_streams.h"

namespace graphpipe::scheduler {

void TwoStreamWriter::add(ActionOp op, size_t stream, int64_t index) {
  const MicroBatchStream& of = streams_[stream];
  if (index < of.count)
    list_.push_back(compute_action(op, of.stage, of.replica, micro_batch_range(graph_, of.stage, of.first + index)));
}

void TwoStreamWriter::backward(size_t stream) {
  add(ActionOp::kBackward, stream, input_gradients_[stream]++);
  ++weight_gradients_[stream];
}

void TwoStreamWriter::input_gradient(size_t stream) {
  add(ActionOp::kInputGradient, stream, input_gradients_[stream]++);
  split_.push_back(stream);
}

void TwoStreamWriter::oldest_weight_gradient() {
  GP_CHECK(next_split_ < split_.size());
  weight_gradient(split_[next_split_++]);
}

void TwoStreamWriter::overlapped(size_t forward_stream, size_t backward_stream) {
  forward(forward_stream);
  list_.back().overlaps_next = true;
  backward(backward_stream);
}

}  // namespace graphpipe::scheduler
