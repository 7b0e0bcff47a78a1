#include "scheduler/policies/chunks.h"

#include <algorithm>

namespace graphpipe::scheduler {

using ir::StageShape;

bool is_chain(const StageGraph& graph) {
  for (const ir::StageEdge& edge : graph.edges)
    if (edge.to.index() != edge.from.index() + 1) return false;
  for (const StageId stage : graph.stage_ids())
    if (stage.index() > 0 && graph.predecessors(stage).size() != 1) return false;
  return true;
}

Result<Chunks> chunks_of(const StageGraph& graph, StageShape shape, std::string_view policy) {
  if (graph.stages.empty() || !is_chain(graph))
    return refused(policy, "the stages are not a chain",
                   "plan with --execute chain, or use kfkb or zb-1p, which take any stage graph");
  for (const ir::Stage& stage : graph.stages) {
    if (stage.choice.devices.size() != 1 || !stage.has_backward)
      return refused(policy, "a stage has replicas or no backward", "give every stage one device and a backward");
  }
  GP_TRY_VOID(expect_one_micro_batch(graph, policy, OtherSizes::kRefused));
  std::vector<ir::DeviceId> devices;
  for (const ir::Stage& stage : graph.stages)
    if (std::find(devices.begin(), devices.end(), stage.choice.devices[0]) == devices.end())
      devices.push_back(stage.choice.devices[0]);
  const size_t ranks = devices.size(), stages = graph.stages.size();
  if (stages % ranks != 0 || (shape == StageShape::kV && stages != 2 * ranks))
    return refused(policy, text(stages, " stages do not divide over ", ranks, " devices"),
                   shape == StageShape::kV ? text("use two stages per device, here ", 2 * ranks)
                                           : std::string("use as many stages on every device"));
  Chunks chunks{.ranks = static_cast<int>(ranks),
                .chunks = static_cast<int>(stages / ranks),
                .micro_batches = micro_batch_count(graph, StageId(size_t{0})),
                .stages = std::vector<std::vector<StageId>>(ranks),
                .devices = devices};
  for (const StageId stage : graph.stage_ids()) {
    const size_t rank = ir::device_in_shape(shape, stage, ranks);
    if (graph.stages[stage].choice.devices[0] != devices[rank])
      return refused(
          policy, text("stage ", stage, " is not on the device of its turn"),
          shape == StageShape::kV ? "place stage r and stage 2P-1-r on device r" : "place stage s on device s mod P");
    chunks.stages[rank].push_back(stage);
  }
  return chunks;
}

Action chunk_action(const StageGraph& graph, ActionOp op, StageId stage, int64_t index) {
  return compute_action(op, stage, 0, ir::item_range(graph, stage, index, 0));
}

std::array<MicroBatchStream, 2> chunk_streams(const Chunks& chunks, size_t rank) {
  return {MicroBatchStream{.stage = chunks.stages[rank][0], .count = chunks.micro_batches},
          MicroBatchStream{.stage = chunks.stages[rank][1], .count = chunks.micro_batches}};
}

Schedule schedule_of_ranks(const Chunks& chunks, std::vector<std::vector<Action>> lists, std::string_view policy) {
  Schedule schedule;
  schedule.policy = std::string(policy);
  for (size_t rank = 0; rank < lists.size(); ++rank)
    schedule.programs.push_back({chunks.devices[rank], std::move(lists[rank])});
  std::sort(schedule.programs.begin(), schedule.programs.end(),
            [](const ir::Program& a, const ir::Program& b) { return a.device < b.device; });
  return schedule;
}

}  // namespace graphpipe::scheduler
