#include "driver/pipeline/shaped_plan.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "driver/cli/usage.h"
#include "partitioner/candidates.h"
#include "support/units.h"

namespace graphpipe::driver {

using scheduler::StageShape;

bool wants_shape(const PlanOptions& options, const scheduler::Policy& policy) {
  return policy.shape != StageShape::kAny && options.plan.empty() && options.replicas.empty() &&
         (options.planner == "auto" || options.planner == "equal-split");
}

Result<int> stages_of_shape(StageShape shape, int64_t stages, size_t devices) {
  const auto count = static_cast<int64_t>(devices);
  const auto refused = [&](const char* what) {
    return usage(text("--stages ", stages), text("this policy needs ", what, ", and there are ", count, " devices"),
                 "leave --stages out, or choose another number of stages or devices");
  };
  switch (shape) {
    case StageShape::kLoop:
      if (stages % count != 0) return refused("as many stages on every device");
      return static_cast<int>(stages == 0 ? 2 * count : stages);
    case StageShape::kV:
      if (stages != 0 && stages != 2 * count) return refused("two stages on every device");
      return static_cast<int>(2 * count);
    case StageShape::kBidirectional:
      if (stages != 0 && stages != count) return refused("as many stages as devices");
      return static_cast<int>(count);
    case StageShape::kReplicas:
      if (stages > 1) return refused("one stage");
      return 1;
    case StageShape::kAny:
      break;
  }
  return static_cast<int>(stages == 0 ? count : stages);
}

ir::Assignment place(ir::Assignment chain, StageShape shape, size_t devices) {
  for (size_t s = 0; s < chain.choice.size(); ++s) {
    ir::StageChoice& choice = chain.choice[ir::StageId(s)];
    const size_t turn = s % devices, back = devices - 1 - turn;
    choice.mode = ir::ReplicaMode::kRoundRobin;
    if (shape == StageShape::kReplicas) {
      choice.devices.clear();
      for (size_t device = 0; device < devices; ++device) choice.devices.push_back(ir::DeviceId(device));
    } else if (shape == StageShape::kBidirectional) {
      choice.devices = {ir::DeviceId(turn), ir::DeviceId(back)};
    } else {
      choice.mode = ir::ReplicaMode::kSplit;
      choice.devices = {ir::DeviceId(shape == StageShape::kV && s >= devices ? back : turn)};
    }
  }
  return chain;
}

namespace {

// Replicas divide the samples of every stage.
Status expect_no_scopes(const ir::PlanGraph& graph, const PlanOptions& options) {
  for (const ir::PlanNode& node : graph.nodes)
    if (node.scope != ir::SampleScope::kEach)
      return Diagnostic{.code = Code::kBadPlan,
                        .origin = node.label,
                        .message = text("the node works on the samples of a ",
                                        node.scope == ir::SampleScope::kBatch ? "batch" : "micro-batch",
                                        " together, and the policy ", options.policy, " has replicas of every stage"),
                        .hint = "use the policy kfkb, with --planner data-parallel for replicas of all other nodes"};
  return Ok{};
}

}  // namespace

Result<partitioner::PlanAnswer> plan_shape(const partitioner::PlanRequest& request, const PlanOptions& options,
                                           StageShape shape) {
  const size_t devices = request.cluster->devices.size();
  if (shape == StageShape::kReplicas || shape == StageShape::kBidirectional)
    GP_TRY_VOID(expect_no_scopes(*request.graph, options));
  GP_TRY(const int stages, stages_of_shape(shape, options.stages, devices));
  // The cut is made for as many devices as stages, whose memory the schedule's check limits afterwards.
  ir::Cluster line = *request.cluster;
  ir::Device one = line.devices[ir::DeviceId(size_t{0})];
  one.memory = Bytes(int64_t{1} << 50);
  line.devices = {};
  line.devices.resize(static_cast<size_t>(stages), one);
  line.levels = {line.levels.back()};
  line.levels.back().group = std::max(stages, 1);
  partitioner::PlanRequest cut = request;
  cut.cluster = &line;
  cut.stages = stages;
  // The bound of a step is that of the plan on the devices there are.
  cut.known_step = kInfinity;
  double known_step = request.known_step;
  cut.evaluate = [&](const ir::Assignment& chain) {
    const ir::Assignment placed = place(chain, shape, devices);
    if (!partitioner::may_beat(request, placed, known_step)) return kInfinity;
    const double step = request.evaluate(placed);
    known_step = std::min(known_step, step);
    return step;
  };
  cut.refusal = [&](const ir::Assignment& chain) -> std::optional<Diagnostic> {
    if (!request.refusal || std::isfinite(known_step)) return std::nullopt;  // another plan is there
    return request.refusal(place(chain, shape, devices));
  };
  GP_TRY(partitioner::PlanAnswer answer, partitioner::plan("equal-split", cut));
  for (partitioner::PlanCandidate& candidate : answer.candidates)
    candidate.assignment = place(std::move(candidate.assignment), shape, devices);
  return answer;
}

}  // namespace graphpipe::driver
