// ZB-V: two chunks per rank, the chain goes down the ranks and back up, so that the first and the last stage share a
// rank. Seven phases per rank, as in the published hand-made schedule; with fewer than 2P-1 micro-batches the schedule
// of 2P-1 is made and what is too much left out.

#include <algorithm>

#include "scheduler/chunks.h"

namespace graphpipe::scheduler {
namespace {

/// Writes one rank's list and counts what has been written.
class RankWriter {
 public:
  RankWriter(const StageGraph& graph, const std::vector<StageId>& stages, int64_t micro_batches)
      : graph_(graph), stages_(stages), micro_batches_(micro_batches) {}

  void forward(size_t chunk) { add(ActionOp::kForward, chunk, forwards_[chunk]); }
  void input_gradient(size_t chunk) { add(ActionOp::kInputGradient, chunk, input_gradients_[chunk]); }
  void weight_gradient(size_t chunk) { add(ActionOp::kWeightGradient, chunk, weight_gradients_[chunk]); }
  void backward(size_t chunk) {
    input_gradient(chunk);
    weight_gradient(chunk);
  }
  int64_t forwards(size_t chunk) const { return forwards_[chunk]; }
  int64_t weights_left(size_t chunk) const { return input_gradients_[chunk] - weight_gradients_[chunk]; }
  std::vector<Action> take() { return std::move(list_); }

 private:
  void add(ActionOp op, size_t chunk, int64_t& count) {
    if (count < micro_batches_) list_.push_back(chunk_action(graph_, op, stages_[chunk], count));
    ++count;
  }
  const StageGraph& graph_;
  const std::vector<StageId>& stages_;
  const int64_t micro_batches_;
  int64_t forwards_[2] = {}, input_gradients_[2] = {}, weight_gradients_[2] = {};
  std::vector<Action> list_;
};

std::vector<Action> rank_list(const StageGraph& graph, const Chunks& chunks, int64_t rank) {
  const int64_t ranks = chunks.ranks;
  const int64_t total = std::max<int64_t>(chunks.micro_batches, 2 * ranks - 1);
  RankWriter out(graph, chunks.stages[static_cast<size_t>(rank)], chunks.micro_batches);
  for (int64_t i = 0; i < 2 * (ranks - rank) - 1; ++i) out.forward(0);
  for (int64_t i = 0; i < rank; ++i) {
    out.forward(1);
    out.forward(0);
  }
  for (int64_t i = 0; i < ranks - rank; ++i) {
    out.forward(1);
    out.backward(1);
  }
  while (out.forwards(1) < out.forwards(0) || out.forwards(0) < total) {
    if (out.forwards(0) < total) out.forward(0);
    out.backward(0);
    out.forward(1);
    out.backward(1);
  }
  for (int64_t i = 0; i < rank; ++i) {
    out.input_gradient(0);
    out.input_gradient(1);
  }
  for (int64_t i = 0; i < ranks - rank; ++i) {
    out.input_gradient(0);
    out.weight_gradient(0);
  }
  while (out.weights_left(1) > 0) out.weight_gradient(1);
  while (out.weights_left(0) > 0) out.weight_gradient(0);
  return out.take();
}

}  // namespace

Result<Schedule> order_zb_v(const PolicyRequest& request) {
  GP_TRY(const Chunks chunks, chunks_of(request.graph, ChunkShape::kV, "zb-v"));
  std::vector<std::vector<Action>> lists;
  for (int rank = 0; rank < chunks.ranks; ++rank) lists.push_back(rank_list(request.graph, chunks, rank));
  return schedule_of_ranks(chunks, std::move(lists), "zb-v");
}

}  // namespace graphpipe::scheduler
