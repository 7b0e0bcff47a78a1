#include "partitioner/simple_planners.h"

#include <algorithm>
#include <numeric>

#include "partitioner/candidates.h"
#include "support/stopwatch.h"
#include "support/units.h"

namespace graphpipe::partitioner {

namespace {

/// The least largest sum of `runs` consecutive runs: the end of each run.
std::vector<size_t> even_runs(const std::vector<double>& weight, size_t runs) {
  const size_t count = weight.size();
  std::vector<double> before(count + 1, 0);
  for (size_t i = 0; i < count; ++i) before[i + 1] = before[i] + weight[i];
  std::vector<std::vector<double>> best(runs + 1, std::vector<double>(count + 1, kInfinity));
  std::vector<std::vector<size_t>> from(runs + 1, std::vector<size_t>(count + 1, 0));
  best[0][0] = 0;
  for (size_t run = 1; run <= runs; ++run)
    for (size_t end = run; end <= count; ++end)
      for (size_t start = run - 1; start < end; ++start) {
        const double largest = std::max(best[run - 1][start], before[end] - before[start]);
        if (largest < best[run][end]) {
          best[run][end] = largest;
          from[run][end] = start;
        }
      }
  std::vector<size_t> ends(runs);
  size_t end = count;
  for (size_t run = runs; run > 0; end = from[run--][end]) ends[run - 1] = end;
  return ends;
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

Result<PlanAnswer> plan_data_parallel(const PlanRequest& request) {
  const Stopwatch watch;
  if (request.stages && *request.stages != 1)
    return Diagnostic{.code = Code::kUsage,
                      .message = text("data parallelism has one stage, --stages asks for ", *request.stages),
                      .hint = "leave --stages out, or use another planner"};
  Candidates candidates(request);
  FoundStage all;
  for (ir::PlanNodeId node : request.graph->node_ids()) all.nodes.push_back(node);
  for (Samples size : micro_batch_sizes(request)) {
    const int64_t devices = request.replication ? static_cast<int64_t>(request.cluster->devices.size()) : 1;
    all.micro_batch = size;
    all.devices = static_cast<int>(std::min(size.count, devices));
    candidates.add({all});
  }
  return candidates.answer(true, watch.seconds());
}

Result<PlanAnswer> plan_equal_split(const PlanRequest& request) {
  const Stopwatch watch;
  GP_TRY(const DeviceBudget budget, device_budget(request));
  Candidates candidates(request);
  const Items items = make_items(*request.graph);
  const SearchSpace line = space_of_line(items, 0);
  const auto& elements = line.chains.back().elements;
  std::vector<double> weight;
  for (const SearchElement& element : elements) {
    double sum = 0;
    for (ir::PlanNodeId id : element.nodes) {
      const ir::PlanNode& node = request.graph->nodes[id];
      sum += node.forward.at(1.0) + node.input_gradient.at(1.0) + node.weight_gradient.at(1.0);
    }
    weight.push_back(sum);
  }
  const size_t wanted = static_cast<size_t>(request.stages.value_or(budget.devices));
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
