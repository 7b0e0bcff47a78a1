// ZB-V: two chunks per rank. The chain goes down the ranks and back up, so that the first and the last stage share a
// rank. Seven phases per rank, as in the published hand-made schedule; with fewer than 2P-1 micro-batches the schedule
// for 2P-1 is made and the surplus left out.

#include <algorithm>

#include "scheduler/policies/chunks.h"

namespace graphpipe::scheduler {
namespace {

std::vector<Action> rank_list(const StageGraph& graph, const Chunks& chunks, int64_t rank) {
  const int64_t ranks = chunks.ranks;
  const int64_t total = std::max<int64_t>(chunks.micro_batches, 2 * ranks - 1);
  TwoStreamWriter out(graph, chunk_streams(chunks, static_cast<size_t>(rank)));
  const auto split_backward = [&out](size_t chunk) {
    out.input_gradient(chunk);
    out.weight_gradient(chunk);
  };
  for (int64_t i = 0; i < 2 * (ranks - rank) - 1; ++i) out.forward(0);
  for (int64_t i = 0; i < rank; ++i) {
    out.forward(1);
    out.forward(0);
  }
  for (int64_t i = 0; i < ranks - rank; ++i) {
    out.forward(1);
    split_backward(1);
  }
  while (out.forwards(1) < out.forwards(0) || out.forwards(0) < total) {
    if (out.forwards(0) < total) out.forward(0);
    split_backward(0);
    out.forward(1);
    split_backward(1);
  }
  for (int64_t i = 0; i < rank; ++i) {
    out.input_gradient(0);
    out.input_gradient(1);
  }
  for (int64_t i = 0; i < ranks - rank; ++i) split_backward(0);
  while (out.weight_gradients_left(1) > 0) out.weight_gradient(1);
  while (out.weight_gradients_left(0) > 0) out.weight_gradient(0);
  return out.take();
}

}  // namespace

Result<Schedule> order_zb_v(const PolicyRequest& request) {
  GP_TRY(const Chunks chunks, chunks_of(request.graph, ir::StageShape::kV, "zb-v"));
  std::vector<std::vector<Action>> lists;
  for (int rank = 0; rank < chunks.ranks; ++rank) lists.push_back(rank_list(request.graph, chunks, rank));
  return schedule_of_ranks(chunks, std::move(lists), "zb-v");
}

}  // namespace graphpipe::scheduler
