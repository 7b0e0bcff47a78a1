#include "partitioner/space_search.h"

#include <algorithm>
#include <memory>
#include <thread>

#include "cost/lower_bound.h"
#include "partitioner/device_search.h"

namespace graphpipe::partitioner {

namespace {

/// The search that knows in-flight numbers takes long on larger graphs.
constexpr size_t kMostElementsForFlights = 160;

/// Micro-batch sizes and k of one search; k times the size is the same for all.
using RoundSizes = std::vector<std::pair<Samples, int>>;

std::vector<RoundSizes> rounds_of(const PlanRequest& request) {
  std::vector<RoundSizes> rounds;
  // Larger micro-batches first: they are the cheaper ones per sample, and the least of a problem to schedule.
  std::vector<Samples> sizes = micro_batch_sizes(request);
  for (auto size = sizes.rbegin(); size != sizes.rend(); ++size) rounds.push_back({{*size, 1}});
  if (!request.micro_batch_per_stage || request.micro_batch) return rounds;
  for (int64_t round = 2; round <= request.graph->batch.count; round *= 2) {
    RoundSizes mixed;
    for (int64_t size = 1; size <= round; size *= 2) mixed.push_back({Samples(size), static_cast<int>(round / size)});
    rounds.push_back(std::move(mixed));
  }
  return rounds;
}

/// A time per sample that no single stage exceeds.
double most_time_per_sample(const ir::PlanGraph& graph, const ir::Cluster& cluster) {
  const double batch = static_cast<double>(graph.batch.count);
  double seconds = 0, bytes = 0;
  for (const ir::PlanNode& node : graph.nodes)
    for (double samples : {1.0, batch})
      seconds += 2 * node.forward.at(samples) + node.input_gradient.at(samples) + node.weight_gradient.at(samples);
  for (const ir::PlanValue& value : graph.values) bytes += 2 * (value.bytes.at(batch) + value.gradient_bytes.at(batch));
  for (const ir::WeightGroup& group : graph.weight_groups) bytes += 2 * static_cast<double>(group.bytes.count);
  double latency = 0, bandwidth = std::numeric_limits<double>::infinity();
  for (const ir::LinkLevel& level : cluster.levels) {
    latency = std::max(latency, level.latency.count);
    bandwidth = std::min(bandwidth, level.bandwidth.count);
  }
  const double messages = 4 * static_cast<double>(graph.values.size() + cluster.devices.size());
  return seconds + bytes / bandwidth + messages * latency;
}

/// Seconds of a step that no plan with micro-batches of at most `size` beats.
double least_step(const ir::PlanGraph& graph, const ir::Cluster& cluster, Samples size) {
  double seconds = 0;
  for (const ir::PlanNode& node : graph.nodes) seconds += cost::cheapest_seconds_per_sample(node, size);
  return seconds * static_cast<double>(graph.batch.count) / static_cast<double>(cluster.devices.size());
}

size_t elements_of(const SearchSpace& space) {
  size_t count = 0;
  for (const SearchChain& chain : space.chains) count += chain.elements.size();
  return count;
}

/// One space at one round.
class Task {
 public:
  Task(const PlanRequest& request, const SearchSpace& space, const SpaceSearchOptions& options,
       const DeviceBudget& budget, const Deadline& deadline)
      : request_(request), space_(space), options_(options), budget_(budget), deadline_(deadline), found_(request) {
    limits_.devices = budget.devices;
    limits_.stages = request.stages.value_or(0);
    limits_.memory = std::numeric_limits<double>::infinity();
    // A stage may come to lie on any device.
    if (request.limit_memory)
      for (const ir::Device& device : request.cluster->devices)
        limits_.memory = std::min(limits_.memory, static_cast<double>(device.memory.count));
    bound_ = cost::plan_bound(*request.graph, *request.cluster).time_per_sample();
    most_ = most_time_per_sample(*request.graph, *request.cluster);
  }

  Candidates run(const RoundSizes& sizes) {
    std::vector<std::unique_ptr<StageEvaluator>> owned;
    std::vector<StageEvaluator*> evaluators;
    for (const auto& [size, k] : sizes) {
      owned.push_back(std::make_unique<StageEvaluator>(*request_.graph, *request_.cluster, size, k,
                                                       budget_.largest_replication, options_.recompute));
      evaluators.push_back(owned.back().get());
    }
    if (sizes.size() == 1 && !request_.stages) search_devices(*evaluators.front(), sizes.front().first);
    else search_flights(evaluators, true, bound_);
    return std::move(found_);
  }

 private:
  void search_devices(StageEvaluator& evaluator, Samples size) {
    DeviceSearch search(space_, evaluator, size, limits_, deadline_);
    const auto best = search.smallest(bound_, most_);
    if (!best) return found_.note_shortfall(search.smallest_shortfall());
    const bool usable = found_.add(best->stages);
    for (double slack : options_.slacks)
      if (const auto other = search.probe(best->t * slack)) found_.add(other->stages);
    // What neighbours hold back did not count.
    if (!usable && elements_of(space_) <= kMostElementsForFlights) search_flights({&evaluator}, false, best->t);
  }

  void search_flights(const std::vector<StageEvaluator*>& evaluators, bool blind_first, double guess) {
    StageSearch search(space_, evaluators, request_.graph->batch, deadline_);
    SearchLimits limits = limits_;
    limits.blind = blind_first;
    auto best = search.smallest(guess, most_, limits);
    if (!best) return found_.note_shortfall(search.smallest_shortfall());
    if (!found_.add(best->stages) && blind_first) {
      limits.blind = false;
      best = search.smallest(best->t, most_, limits);
      if (!best) return found_.note_shortfall(search.smallest_shortfall());
      found_.add(best->stages);
    }
    for (double slack : options_.slacks)
      if (const auto stages = search.probe(best->t * slack, limits)) found_.add(*stages);
  }

  const PlanRequest& request_;
  const SearchSpace& space_;
  const SpaceSearchOptions& options_;
  const DeviceBudget& budget_;
  Deadline deadline_;  // a copy: each thread asks its own
  Candidates found_;
  SearchLimits limits_;
  double bound_ = 0, most_ = 0;
};

}  // namespace

void run_tasks(size_t count, int threads, const std::function<void(size_t)>& work) {
  std::atomic<size_t> next = 0;
  const auto loop = [&] {
    for (size_t task = next++; task < count; task = next++) work(task);
  };
  std::vector<std::thread> helpers;
  for (size_t i = 1; i < std::min(count, static_cast<size_t>(std::max(threads, 1))); ++i) helpers.emplace_back(loop);
  loop();
  for (std::thread& helper : helpers) helper.join();
}

void search_spaces(const PlanRequest& request, const std::vector<SearchSpace>& spaces,
                   const SpaceSearchOptions& options, const Deadline& deadline, Candidates& found) {
  const Result<DeviceBudget> budget = device_budget(request);
  if (!budget.ok()) return;
  std::vector<RoundSizes> rounds = rounds_of(request);
  // First about four micro-batches per device and stage; what that gives rules out sizes that cannot do better.
  const int64_t middle =
      std::max<int64_t>(1, request.graph->batch.count / (4 * static_cast<int64_t>(request.cluster->devices.size())));
  const auto by_closeness = [&](const RoundSizes& a, const RoundSizes& b) {
    const auto distance = [&](const RoundSizes& round) {
      const double ratio = static_cast<double>(round.back().first.count) / static_cast<double>(middle);
      return std::pair(round.size() > 1, std::max(ratio, 1 / ratio));
    };
    return distance(a) < distance(b);
  };
  std::stable_sort(rounds.begin(), rounds.end(), by_closeness);
  const auto search = [&](const std::vector<RoundSizes>& chosen) {
    std::vector<std::optional<Candidates>> results(chosen.size() * spaces.size());
    run_tasks(results.size(), request.threads, [&](size_t i) {
      results[i].emplace(
          Task(request, spaces[i % spaces.size()], options, *budget, deadline).run(chosen[i / spaces.size()]));
    });
    for (std::optional<Candidates>& result : results) found.absorb(std::move(*result));
  };
  const size_t first = std::min<size_t>(rounds.size(), 2);
  search({rounds.begin(), rounds.begin() + static_cast<std::ptrdiff_t>(first)});
  const std::vector<PlanCandidate> best = found.best(1);
  const double batch = static_cast<double>(request.graph->batch.count);
  std::vector<RoundSizes> rest;
  for (size_t i = first; i < rounds.size(); ++i) {
    const double least = least_step(*request.graph, *request.cluster, rounds[i].back().first);
    if (best.empty() || least < best.front().step_seconds || least / batch < found.least_objective())
      rest.push_back(rounds[i]);
  }
  search(rest);
}

}  // namespace graphpipe::partitioner
