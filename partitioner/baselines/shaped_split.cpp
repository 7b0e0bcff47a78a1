#include "partitioner/baselines/shaped_split.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "partitioner/baselines/simple_planners.h"
#include "partitioner/candidates.h"
#include "support/units.h"

namespace graphpipe::partitioner {
namespace {

using ir::StageShape;

/// Stages of a shape on `devices` devices: as many as asked for; without a request two for each device where the shape
/// has chunks.
Result<int> stages_of_shape(StageShape shape, std::optional<int> asked, size_t devices) {
  const auto count = static_cast<int>(devices);
  const int stages = asked.value_or(0);
  const auto refused = [&](const char* what) {
    return Diagnostic{.code = Code::kUsage,
                      .origin = asked ? ModelText(text("--stages ", stages)) : ModelText("--policy"),
                      .message = text("this policy needs ", what, ", and there are ", count, " devices"),
                      .hint = asked ? "leave --stages out, or choose another number of stages or devices"
                                    : "choose another number of devices"};
  };
  switch (shape) {
    case StageShape::kLoop:
      if (stages % count != 0) return refused("as many stages on every device");
      return stages == 0 ? 2 * count : stages;
    case StageShape::kV:
      if (stages != 0 && stages != 2 * count) return refused("two stages on every device");
      return 2 * count;
    case StageShape::kBidirectional:
      if (count % 2 != 0) return refused("an even number of devices");
      if (stages != 0 && stages != count) return refused("as many stages as devices");
      return count;
    case StageShape::kReplicas:
      if (stages > 1) return refused("one stage");
      return 1;
    case StageShape::kAny:
      break;
  }
  return stages == 0 ? count : stages;
}

ir::Assignment place(const PlanRequest& request, ir::Assignment chain, StageShape shape) {
  const size_t devices = request.cluster->devices.size();
  for (size_t s = 0; s < chain.choice.size(); ++s)
    place_in_shape(shape, ir::StageId(s), devices, chain.choice[ir::StageId(s)]);
  if (!request.shard_optimizer_state) return chain;
  // The cut had one device per stage: only now are there replicas that can divide anything.
  if (auto stages = build_stage_graph(*request.graph, chain); stages.ok()) divide_states(request, *stages, chain);
  return chain;
}

// Stages in two directions have replicas that take micro-batches in turn; those of one stage may split them.
Status expect_replicas(const ir::PlanGraph& graph, StageShape shape) {
  for (const ir::PlanNode& node : graph.nodes)
    if (shape == StageShape::kReplicas ? !node.may_have_replicas() : node.scope != ir::SampleScope::kEach)
      return Diagnostic{
          .code = Code::kBadPlan,
          .origin = node.label,
          .message = text("the node works on the samples of a ",
                          node.scope == ir::SampleScope::kBatch ? "batch" : "micro-batch",
                          " together, and this policy has replicas of every stage that take micro-batches in turn"),
          .hint = "use the policy kfkb, with --planner data-parallel for replicas"};
  return Ok{};
}

/// The graph on devices that are alike, with the prices that searches go by.
ir::PlanGraph without_kinds(ir::PlanGraph graph) {
  graph.kind_of_device.clear();
  for (ir::PlanNode& node : graph.nodes) node.by_kind.clear();
  return graph;
}

}  // namespace

Result<PlanAnswer> plan_in_shape(const PlanRequest& request, StageShape shape) {
  const size_t devices = request.cluster->devices.size();
  if (shape == StageShape::kReplicas || shape == StageShape::kBidirectional)
    GP_TRY_VOID(expect_replicas(*request.graph, shape));
  GP_TRY(const int stages, stages_of_shape(shape, request.stages, devices));
  if (shape == StageShape::kReplicas) return plan_data_parallel(request);
  // The cut is made for as many devices as stages, whose memory the schedule's check limits afterwards.
  ir::Cluster line = *request.cluster;
  ir::Device one = line.devices[ir::DeviceId(size_t{0})];
  one.memory = Bytes(int64_t{1} << 50);
  line.devices = {};
  line.devices.resize(static_cast<size_t>(stages), one);
  line.levels = {line.levels.back()};
  line.levels.back().group = std::max(stages, 1);
  PlanRequest cut = request;
  ir::PlanGraph alike;
  if (!request.graph->kind_of_device.empty()) {
    alike = without_kinds(*request.graph);
    cut.graph = &alike;
  }
  cut.cluster = &line;
  cut.stages = stages;
  // The bound of a step is that of the plan on the devices there are.
  cut.known_step = kInfinity;
  double known_step = request.known_step;
  cut.evaluate = [&](const ir::Assignment& chain) {
    const ir::Assignment placed = place(request, chain, shape);
    if (!may_beat(request, placed, known_step)) return kInfinity;
    const double step = request.evaluate(placed);
    known_step = std::min(known_step, step);
    return step;
  };
  cut.refusal = [&](const ir::Assignment& chain) -> std::optional<Diagnostic> {
    if (!request.refusal || std::isfinite(known_step)) return std::nullopt;  // another plan is there
    return request.refusal(place(request, chain, shape));
  };
  GP_TRY(PlanAnswer answer, plan(kEqualSplit, cut));
  for (PlanCandidate& candidate : answer.candidates)
    candidate.assignment = place(request, std::move(candidate.assignment), shape);
  return answer;
}

}  // namespace graphpipe::partitioner
