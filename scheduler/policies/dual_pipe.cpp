// Bidirectional pipelines. DualPipe and Chimera keep two replicas of a chain and feed them from both ends: replica 0 of
// stage s on rank s, replica 1 on rank P-1-s. DualPipeV folds DualPipe: the second direction becomes the second chunk
// of a V, and one replica is enough. Sources: DeepSeek-V3 (DualPipe), its cut-in-half form (DualPipeV), Chimera with
// direct concatenation; docs/schedules.md, section 2.7.

#include <algorithm>

#include "scheduler/policies/chunks.h"

namespace graphpipe::scheduler {
namespace {

/// The eight phases of one rank. `reach` ranks lie between an end and the middle; this one is number `depth` of them.
/// Stream 0 enters on the rank's own side; each stream has `count` micro-batches.
std::vector<Action> eight_phases(TwoStreamWriter out, int64_t reach, int64_t depth, int64_t count) {
  const int64_t to_middle = reach - depth - 1;
  for (int64_t i = 0; i < 2 * to_middle; ++i) out.forward(0);
  for (int64_t i = 0; i <= depth; ++i) {
    out.forward(0);
    out.forward(1);
  }
  for (int64_t i = 0; i < to_middle; ++i) {
    out.input_gradient(1);
    out.oldest_weight_gradient();
    out.forward(1);
  }
  for (int64_t i = 0; i <= count - 2 * reach + depth; ++i) {
    // In the middle the first backward needs what its own forward has just sent.
    if (i == 0 && to_middle == 0) {
      out.forward(0);
      out.backward(1);
    } else {
      out.overlapped(0, 1);
    }
    out.overlapped(1, 0);
  }
  for (int64_t i = 0; i < to_middle; ++i) {
    out.backward(1);
    out.overlapped(1, 0);
  }
  // The second half of these backwards is split, so that their weight gradients fill the end.
  for (int64_t i = 0; i < 2 * (depth + 1); ++i)
    if (const size_t stream = i % 2 == 0 ? 1 : 0; i <= depth) out.backward(stream);
    else out.input_gradient(stream);
  for (int64_t i = 0; i < to_middle; ++i) {
    out.oldest_weight_gradient();
    out.input_gradient(0);
  }
  for (int64_t i = 0; i <= depth; ++i) out.oldest_weight_gradient();
  return out.take();
}

struct Directions {
  int64_t ranks = 0;
  int64_t micro_batches = 0;
  std::vector<ir::DeviceId> devices;
};

Result<Directions> directions_of(const StageGraph& graph, std::string_view policy) {
  const size_t ranks = graph.stages.size();
  if (!is_chain(graph))
    return refused(policy, "the stages are not a chain",
                   "plan with --execute chain, or use kfkb or zb-1p, which take any graph");
  if (ranks % 2 != 0) return refused(policy, text(ranks, " stages"), "use an even number of stages");
  Directions result{.ranks = static_cast<int64_t>(ranks), .micro_batches = 0, .devices = {}};
  for (const ir::Stage& stage : graph.stages) {
    if (stage.choice.devices.size() != 2 || stage.choice.mode != ir::ReplicaMode::kRoundRobin || !stage.has_backward)
      return refused(policy, "a stage has not two replicas that take turns, or no backward",
                     "give every stage two round-robin replicas and a backward");
    result.devices.push_back(stage.choice.devices[0]);
  }
  GP_TRY_VOID(expect_one_micro_batch(graph, policy, OtherSizes::kRefused));
  for (const StageId stage : graph.stage_ids())
    if (graph.stages[stage].choice.devices[1] != result.devices[ranks - 1 - stage.index()])
      return refused(policy, text("stage ", stage, " is not on the device of its turn"),
                     "place replica 0 of stage s on device s, replica 1 on device P-1-s");
  result.micro_batches = micro_batch_count(graph, StageId(size_t{0}));
  return result;
}

Schedule schedule_of(const Directions& directions, std::vector<std::vector<Action>> lists, std::string_view policy) {
  Chunks chunks;
  chunks.devices = directions.devices;
  return schedule_of_ranks(chunks, std::move(lists), policy);
}

}  // namespace

Result<Schedule> order_dualpipe(const PolicyRequest& request) {
  GP_TRY(const Directions directions, directions_of(request.graph, "dualpipe"));
  const int64_t ranks = directions.ranks, half = directions.micro_batches / 2;
  if (directions.micro_batches % 2 != 0 || half < ranks)
    return refused("dualpipe", text(directions.micro_batches, " micro-batches on ", ranks, " devices"),
                   "use an even number of micro-batches, at least two per device");
  std::vector<std::vector<Action>> lists;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    std::array<MicroBatchStream, 2> streams;
    for (const int replica : {0, 1}) {
      const int64_t stage = replica == 0 ? rank : ranks - 1 - rank;
      const bool own_side = stage < ranks / 2;
      streams[own_side ? 0 : 1] = {StageId(static_cast<size_t>(stage)), replica, replica * half, half};
    }
    lists.push_back(
        eight_phases(TwoStreamWriter(request.graph, streams), ranks / 2, std::min(rank, ranks - 1 - rank), half));
  }
  return schedule_of(directions, std::move(lists), "dualpipe");
}

Result<Schedule> order_dualpipev(const PolicyRequest& request) {
  GP_TRY(const Chunks chunks, chunks_of(request.graph, ir::StageShape::kV, "dualpipev"));
  if (chunks.micro_batches < 2 * chunks.ranks)
    return refused("dualpipev", text(chunks.micro_batches, " micro-batches on ", chunks.ranks, " devices"),
                   "use at least two micro-batches per device");
  std::vector<std::vector<Action>> lists;
  for (int rank = 0; rank < chunks.ranks; ++rank)
    lists.push_back(eight_phases(TwoStreamWriter(request.graph, chunk_streams(chunks, static_cast<size_t>(rank))),
                                 chunks.ranks, rank, chunks.micro_batches));
  return schedule_of_ranks(chunks, std::move(lists), "dualpipev");
}

/// Units of P micro-batches, half of them in each direction. In a unit that starts at slot t, forward number j of a
/// direction runs at t + 2j + s on its stage s and its backward at t + 2j + 2P - 1 - s; units follow every 2P slots.
/// With P even no two actions of a rank meet. A last unit may be smaller.
Result<Schedule> order_chimera(const PolicyRequest& request) {
  GP_TRY(const Directions directions, directions_of(request.graph, "chimera"));
  const int64_t ranks = directions.ranks;
  std::vector<std::vector<std::pair<int64_t, Action>>> slots(static_cast<size_t>(ranks));
  for (int64_t index = 0; index < directions.micro_batches; ++index) {
    const int64_t unit = index / ranks, unit_size = std::min(ranks, directions.micro_batches - unit * ranks);
    const int64_t in_unit = index % ranks, down = (unit_size + 1) / 2;
    const int replica = in_unit < down ? 0 : 1;
    const int64_t start = 2 * ranks * unit + 2 * (replica == 0 ? in_unit : in_unit - down);
    for (const StageId stage : request.graph.stage_ids()) {
      const int64_t s = static_cast<int64_t>(stage.index());
      auto& rank = slots[static_cast<size_t>(replica == 0 ? s : ranks - 1 - s)];
      const SampleRange range = micro_batch_range(request.graph, stage, index);
      rank.push_back({start + s, compute_action(ActionOp::kForward, stage, replica, range)});
      rank.push_back({start + 2 * ranks - 1 - s, compute_action(ActionOp::kBackward, stage, replica, range)});
    }
  }
  std::vector<std::vector<Action>> lists(slots.size());
  for (size_t rank = 0; rank < slots.size(); ++rank) {
    std::sort(slots[rank].begin(), slots[rank].end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [slot, action] : slots[rank]) lists[rank].push_back(action);
  }
  return schedule_of(directions, std::move(lists), "chimera");
}

}  // namespace graphpipe::scheduler
