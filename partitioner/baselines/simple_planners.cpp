#include "partitioner/baselines/simple_planners.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "cost/lower_bound.h"
#include "partitioner/batch_stages.h"
#include "partitioner/candidates.h"
#include "support/even_runs.h"
#include "support/integer_math.h"
#include "support/stopwatch.h"
#include "support/units.h"

namespace graphpipe::partitioner {

namespace {

/// A lower bound on the seconds per step of the busiest stage, each on one device.
double busy_seconds(const ir::PlanGraph& graph, const std::vector<FoundStage>& stages) {
  double busiest = 0;
  for (const FoundStage& stage : stages) {
    double seconds = 0;
    const bool whole = graph.scope_of(stage.nodes) == ir::SampleScope::kBatch;
    for (const ir::PlanNodeId id : stage.nodes)
      seconds += cost::cheapest_seconds_per_sample(graph.nodes[id], whole ? graph.batch : stage.micro_batch);
    busiest = std::max(busiest, seconds * static_cast<double>(graph.batch.count));
  }
  return busiest;
}

}  // namespace

Result<PlanAnswer> plan_manual(const PlanRequest& request) {
  if (request.manual == nullptr)
    return Diagnostic{.code = Code::kUsage, .message = "no plan was given", .hint = "name one with --plan FILE"};
  ir::Assignment assignment = *request.manual;
  GP_TRY_VOID(build_stage_graph(*request.graph, assignment));
  for (const ir::StageChoice& choice : assignment.choice)
    for (ir::DeviceId device : choice.devices)
      if (device.index() >= request.cluster->devices.size())
        return Diagnostic{
            .code = Code::kBadPlan,
            .message = text("the plan uses device ", device, ", the cluster has ", request.cluster->devices.size()),
            .hint = "use the cluster that the plan was made for"};
  Candidates candidates(request);
  candidates.add(std::move(assignment));
  return candidates.answer(true, 0);
}

namespace {

/// Replicas of the one stage of data parallelism: one per device, or what --replicas says.
Result<int64_t> replicas_asked_for(const PlanRequest& request) {
  const int64_t batch = request.graph->batch.count;
  int64_t devices = request.replication ? static_cast<int64_t>(request.cluster->devices.size()) : 1;
  for (const ForcedReplicas& forced : request.replicas) {
    if (forced.stage != 0)
      return Diagnostic{.code = Code::kUsage,
                        .message = text("data parallelism has one stage, there is no stage ", forced.stage),
                        .hint = "leave --replicas out, or use another planner"};
    devices = forced.replicas;
  }
  if (devices > static_cast<int64_t>(request.cluster->devices.size()))
    return Diagnostic{
        .code = Code::kNoFeasiblePlan,
        .message = text(devices, " replicas need as many devices, there are ", request.cluster->devices.size()),
        .hint = "ask for fewer replicas or more devices"};
  if (batch < devices && !request.replicas.empty())
    return Diagnostic{.code = Code::kNoFeasiblePlan,
                      .message = text("each of ", devices, " replicas needs a sample, and the batch has ", batch),
                      .hint = "use a larger batch, or ask for fewer replicas"};
  return devices;
}

/// The whole graph on the first devices, but for what works on the whole batch.
ir::Assignment one_stage(const PlanRequest& request, int64_t devices, ir::StageChoice choice) {
  for (int64_t device = 0; device < devices; ++device)
    choice.devices.push_back(ir::DeviceId(static_cast<size_t>(device)));
  ir::Assignment assignment;
  assignment.stage_of.resize(request.graph->nodes.size(), ir::StageId(0u));
  assignment.choice.push_back(std::move(choice));
  separate_batch_nodes(*request.graph, assignment);
  return assignment;
}

}  // namespace

Result<PlanAnswer> plan_data_parallel(const PlanRequest& request) {
  const Stopwatch watch;
  if (request.stages && *request.stages != 1)
    return Diagnostic{.code = Code::kUsage,
                      .message = text("data parallelism has one stage, --stages asks for ", *request.stages),
                      .hint = "leave --stages out, or use another planner"};
  GP_TRY(const int64_t devices, replicas_asked_for(request));
  const int64_t batch = request.graph->batch.count;
  Candidates candidates(request);
  using enum ir::ReplicaMode;
  // Devices share the samples of a micro-batch, or take whole micro-batches in turn: whatever feeds more of them.
  const auto fed = [&](Samples size) { return std::min(devices, std::max(size.count, ceil_div(batch, size.count))); };
  // Sizes that leave devices idle only where no other fits.
  std::map<int64_t, std::vector<Samples>, std::greater<>> sizes_by_fed;
  for (const Samples size : micro_batch_sizes(request)) sizes_by_fed[fed(size)].push_back(size);
  for (const auto& [count, sizes] : sizes_by_fed) {
    bool any_fits = false;
    for (const Samples size : sizes) {
      const bool turns = size.count < devices && size.count < ceil_div(batch, size.count);
      ir::Assignment plan = one_stage(request, request.replicas.empty() ? count : devices,
                                      {.micro_batch = size, .mode = turns ? kRoundRobin : kSplit});
      any_fits = candidates.add(std::move(plan)) != MemoryFit::kDoesNotFit || any_fits;
    }
    if (any_fits) break;
  }
  return candidates.answer(true, watch.seconds());
}

Result<PlanAnswer> plan_equal_split(const PlanRequest& request) {
  const Stopwatch watch;
  GP_TRY(const DeviceBudget budget, device_budget(request));
  Candidates candidates(request);
  const NodeGroups groups = group_nodes(*request.graph);
  const SearchSpace line = space_of_line(groups, 0);
  const auto& elements = line.chains.back().elements;
  std::vector<double> weight;
  for (const SearchElement& element : elements) {
    double sum = 0;
    for (ir::PlanNodeId id : element.nodes) {
      const ir::PlanNode& node = request.graph->nodes[id];
      sum += node.total(1);
    }
    weight.push_back(sum);
  }
  const size_t wanted = static_cast<size_t>(request.stages.value_or(budget.devices));
  if (request.stages && wanted > elements.size())
    return Diagnostic{.code = Code::kNoFeasiblePlan,
                      .message = text("the model has ", elements.size(), " pieces between which it can be cut, and ",
                                      wanted, " stages are asked for"),
                      .hint = "ask for fewer stages, or of a policy with several stages on a device use fewer devices"};
  if (wanted <= static_cast<size_t>(budget.devices)) {
    const std::vector<size_t> ends = even_runs(weight, std::min(wanted, elements.size()));
    for (Samples size : micro_batch_sizes(request)) {
      std::vector<FoundStage> stages;
      size_t next = 0;
      for (size_t end : ends) {
        FoundStage stage{.micro_batch = size};
        for (; next < end; ++next)
          stage.nodes.insert(stage.nodes.end(), elements[next].nodes.begin(), elements[next].nodes.end());
        stages.push_back(std::move(stage));
      }
      if (!request.replicas.empty() || busy_seconds(*request.graph, stages) < request.known_step)
        candidates.add(stages);
    }
  }
  return candidates.answer(true, watch.seconds());
}

Result<PlanAnswer> plan_model_parallel(const PlanRequest& request) {
  PlanRequest whole = request;
  if (!whole.micro_batch) whole.micro_batch = request.graph->batch;
  return plan_equal_split(whole);
}

}  // namespace graphpipe::partitioner
