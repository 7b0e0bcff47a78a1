#include "partitioner/search_planners.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include "cost/lower_bound.h"
#include "partitioner/candidates.h"

namespace graphpipe::partitioner {

namespace {

/// Slack over the smallest time per sample at which further plans are looked for: fewer and fuller stages fill and
/// drain faster.
constexpr double kSlacks[] = {1.05, 1.15, 1.3, 1.6};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Micro-batch sizes and k of one search; k times the size is the same for all.
struct RoundSizes {
  std::vector<std::pair<Samples, int>> sizes;
};

std::vector<RoundSizes> rounds_of(const PlanRequest& request) {
  std::vector<RoundSizes> rounds;
  for (Samples size : micro_batch_sizes(request)) rounds.push_back({{{size, 1}}});
  if (!request.micro_batch_per_stage || request.micro_batch) return rounds;
  for (int64_t round = 2; round <= request.graph->batch.count; round *= 2) {
    RoundSizes mixed;
    for (int64_t size = 1; size <= round; size *= 2)
      mixed.sizes.push_back({Samples(size), static_cast<int>(round / size)});
    rounds.push_back(std::move(mixed));
  }
  return rounds;
}

/// A time per sample that no single stage exceeds.
double most_time_per_sample(const ir::PlanGraph& graph, const ir::Cluster& cluster) {
  double most = 0;
  for (const ir::PlanNode& node : graph.nodes)
    most += node.forward.at(1.0) + node.input_gradient.at(1.0) + node.weight_gradient.at(1.0);
  double whole = 0, bytes = 0;
  const double batch = static_cast<double>(graph.batch.count);
  for (const ir::PlanNode& node : graph.nodes)
    whole += node.forward.at(batch) + node.input_gradient.at(batch) + node.weight_gradient.at(batch);
  for (const ir::PlanValue& value : graph.values) bytes += 2 * (value.bytes.at(batch) + value.gradient_bytes.at(batch));
  for (const ir::WeightGroup& group : graph.weight_groups) bytes += 2 * static_cast<double>(group.bytes.count);
  double latency = 0, bandwidth = std::numeric_limits<double>::infinity();
  for (const ir::LinkLevel& level : cluster.levels) {
    latency = std::max(latency, level.latency.count);
    bandwidth = std::min(bandwidth, level.bandwidth.count);
  }
  const double messages = 4 * static_cast<double>(graph.values.size() + cluster.devices.size());
  return most + whole + bytes / bandwidth + messages * latency;
}

class SearchPlanner {
 public:
  SearchPlanner(const PlanRequest& request, SearchSpace space)
      : request_(request),
        space_(std::move(space)),
        deadline_(request.time_limit, request.cancel),
        candidates_(request),
        bound_(cost::plan_bound(*request.graph, *request.cluster).time_per_sample()),
        most_(most_time_per_sample(*request.graph, *request.cluster)) {}

  Result<PlanAnswer> run() {
    const auto start = std::chrono::steady_clock::now();
    GP_TRY(budget_, device_budget(request_));
    limits_.devices = budget_.devices;
    limits_.stages = request_.stages.value_or(0);
    limits_.memory = std::numeric_limits<double>::infinity();
    // A stage may come to lie on any device.
    if (request_.limit_memory)
      for (const ir::Device& device : request_.cluster->devices)
        limits_.memory = std::min(limits_.memory, static_cast<double>(device.memory.count));
    // Larger micro-batches first: they are the cheaper ones per sample, and the least of a problem to schedule.
    std::vector<RoundSizes> rounds = rounds_of(request_);
    for (auto round = rounds.rbegin(); round != rounds.rend() && !deadline_.passed(); ++round) search(*round);
    return candidates_.answer(!deadline_.passed(), seconds_since(start));
  }

 private:
  void search(const RoundSizes& round) {
    std::vector<std::unique_ptr<StageEvaluator>> evaluators;
    std::vector<StageEvaluator*> pointers;
    for (const auto& [size, k] : round.sizes) {
      evaluators.push_back(
          std::make_unique<StageEvaluator>(*request_.graph, *request_.cluster, size, k, budget_.largest_replication));
      pointers.push_back(evaluators.back().get());
    }
    StageSearch search(space_, pointers, request_.graph->batch, deadline_);
    SearchLimits limits = limits_;
    limits.blind = true;
    auto found = search.smallest(bound_, most_, limits);
    if (!found) return candidates_.note_shortfall(search.smallest_shortfall());
    if (!candidates_.add(found->stages)) {
      limits.blind = false;
      found = search.smallest(found->t, most_, limits);
      if (!found) return candidates_.note_shortfall(search.smallest_shortfall());
      candidates_.add(found->stages);
    }
    for (double slack : kSlacks)
      if (auto stages = search.probe(found->t * slack, limits)) candidates_.add(*stages);
  }

  const PlanRequest& request_;
  const SearchSpace space_;
  Deadline deadline_;
  Candidates candidates_;
  const double bound_, most_;
  DeviceBudget budget_;
  SearchLimits limits_;
};

double smallest_element(const Items& items) {
  if (static_cast<double>(items.nodes.size()) <= kExactItems) return 0;
  return std::accumulate(items.weight.begin(), items.weight.end(), 0.0) / kExactItems;
}

}  // namespace

Result<PlanAnswer> plan_graphpipe(const PlanRequest& request) {
  const Items items = make_items(*request.graph);
  std::optional<SpTree> tree = decompose(items.graph);
  if (!tree) tree = make_series_parallel(items.graph, items.weight);
  return SearchPlanner(request, space_of_tree(*tree, items, smallest_element(items))).run();
}

Result<PlanAnswer> plan_sequential(const PlanRequest& request) {
  const Items items = make_items(*request.graph);
  return SearchPlanner(request, space_of_line(items, smallest_element(items))).run();
}

Result<PlanAnswer> plan_auto(const PlanRequest& request) {
  auto graph = plan_graphpipe(request);
  PlanRequest rest = request;
  if (graph.ok()) rest.time_limit = std::max(0.0, request.time_limit - graph->search_seconds);
  auto line = plan_sequential(rest);
  if (!graph.ok()) return line;
  if (!line.ok()) return graph;
  PlanAnswer both = std::move(*graph);
  for (PlanCandidate& candidate : line->candidates) both.candidates.push_back(std::move(candidate));
  std::stable_sort(both.candidates.begin(), both.candidates.end(), [](const PlanCandidate& a, const PlanCandidate& b) {
    return std::pair(a.step_seconds, a.objective) < std::pair(b.step_seconds, b.objective);
  });
  both.objective = std::min(both.objective, line->objective);
  both.complete = both.complete && line->complete;
  both.search_seconds += line->search_seconds;
  return both;
}

}  // namespace graphpipe::partitioner
