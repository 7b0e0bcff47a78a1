#include "partitioner/graphpipe/micro_batch_sweep.h"

#include <algorithm>
#include <memory>
#include <set>
#include <thread>

#include "cost/lower_bound.h"
#include "cost/update_time.h"
#include "partitioner/graphpipe/device_count_dp.h"
#include "partitioner/heterogeneous/device_order.h"
#include "support/run_tasks.h"
#include "support/units.h"

namespace graphpipe::partitioner {

namespace {

/// The search with in-flight numbers takes too long on graphs with more elements.
constexpr size_t kMaxElementsForInFlight = 160;
/// In searches of more elements than this, the sizes on either side of the middle end with the first whose step is
/// longer than the best by this factor.
constexpr size_t kManyElements = 100;
constexpr double kFarFromBest = 1.15;
/// Stages are priced before they are placed, at the slowest link, so a plan may turn out faster than the search says:
/// times are still looked at up to this factor above the known step. Where devices differ there is no such limit, since
/// a faster one may halve the time.
constexpr double kAboveKnown = 1.25;

/// Micro-batch sizes and k of one search; k times the size is the same for all.
using RoundSizes = std::vector<std::pair<Samples, int>>;

std::vector<RoundSizes> rounds_of(const PlanRequest& request) {
  std::vector<RoundSizes> rounds;
  // Larger micro-batches first: they are cheaper per sample and the easiest to schedule.
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
double max_time_per_sample(const ir::PlanGraph& graph, const ir::Cluster& cluster) {
  const double batch = static_cast<double>(graph.batch.count);
  double seconds = 0, bytes = 0;
  for (const ir::PlanNode& node : graph.nodes)
    for (double samples : {1.0, batch}) seconds += node.forward.at(samples) + node.total(samples);
  for (const ir::PlanValue& value : graph.values) bytes += 2 * (value.bytes.at(batch) + value.gradient_bytes.at(batch));
  for (const ir::WeightGroup& group : graph.weight_groups) bytes += 2 * static_cast<double>(group.bytes.count);
  double latency = 0, bandwidth = kInfinity;
  for (const ir::LinkLevel& level : cluster.levels) {
    latency = std::max(latency, level.latency.count);
    bandwidth = std::min(bandwidth, level.bandwidth.count);
  }
  const double messages = 4 * static_cast<double>(graph.values.size() + cluster.devices.size());
  return seconds + bytes / bandwidth + messages * latency;
}

/// Seconds of a step that no plan with micro-batches of at most `size` beats.
double min_step(const ir::PlanGraph& graph, const ir::Cluster& cluster, Samples size) {
  return cost::min_work(graph, size) / static_cast<double>(cluster.devices.size());
}

/// The search of one space in one round.
class Task {
 public:
  Task(const PlanRequest& request, const SearchSpace& space, const SweepOptions& options, const DeviceBudget& budget,
       const Deadline& deadline)
      : request_(request), space_(space), options_(options), budget_(budget), deadline_(deadline), found_(request) {
    limits_.devices = budget.devices;
    limits_.stages = request.stages.value_or(0);
    if (options.in_groups) limits_.group = request.cluster->levels[options.level].group;
    // Two limits: the smallest memory, since a stage may be placed on any device, and the largest, in case the stages
    // that need much are placed on the largest devices.
    std::set<double> memories;
    for (const ir::Device& device : request.cluster->devices) memories.insert(static_cast<double>(device.memory.count));
    if (!request.limit_memory) memories = {kInfinity};
    memories_ = {*memories.begin()};
    if (memories.size() > 1) memories_.push_back(*memories.rbegin());
    bound_ = cost::plan_bound(*request.graph, *request.cluster).time_per_sample();
    max_t_ = max_time_per_sample(*request.graph, *request.cluster);
    if (options.counts_updates)
      max_t_ +=
          cost::update_of_all(*request.graph, *request.cluster).count / static_cast<double>(request.graph->batch.count);
    if (!devices_differ(*request.graph, *request.cluster))
      max_t_ = std::min(max_t_, kAboveKnown * request.known_step / static_cast<double>(request.graph->batch.count));
  }

  Candidates run(const RoundSizes& sizes) {
    std::vector<std::unique_ptr<StageEvaluator>> owned;
    std::vector<StageEvaluator*> evaluators;
    for (const auto& [size, k] : sizes) {
      owned.push_back(std::make_unique<StageEvaluator>(
          *request_.graph, *request_.cluster, size, k, budget_.largest_replication,
          evaluator_options(request_, options_.recompute, options_.counts_updates, options_.level)));
      evaluators.push_back(owned.back().get());
    }
    for (const double memory : memories_) {
      limits_.memory = memory;
      if (sizes.size() == 1 && !request_.stages) search_device_counts(*evaluators.front(), sizes.front().first);
      else search_with_in_flight(evaluators, true, bound_);
    }
    return std::move(found_);
  }

 private:
  MemoryFit add(const std::vector<FoundStage>& stages) {
    const MemoryFit fit = found_.add(stages);
    return limits_.group > 0 ? std::max(fit, found_.add_packed(stages, static_cast<size_t>(limits_.group))) : fit;
  }

  void search_device_counts(StageEvaluator& evaluator, Samples size) {
    DeviceCountDp search(space_, evaluator, size, limits_, deadline_);
    const auto best = search.smallest(bound_, max_t_);
    if (!best) return found_.note_shortfall(search.smallest_shortfall());
    const MemoryFit fit = add(best->stages);
    for (double slack : options_.slacks)
      if (const auto other = search.probe(best->t * slack)) add(other->stages);
    // This search ignores the samples that neighbours force a stage to hold; the other one counts them.
    if (fit != MemoryFit::kFits && space_.elements() <= kMaxElementsForInFlight)
      search_with_in_flight({&evaluator}, false, best->t);
  }

  void search_with_in_flight(const std::vector<StageEvaluator*>& evaluators, bool blind_first, double guess) {
    PipelineDp search(space_, evaluators, request_.graph->batch, deadline_);
    SearchLimits limits = limits_;
    limits.blind = blind_first;
    auto best = search.smallest(guess, max_t_, limits);
    if (!best) return found_.note_shortfall(search.smallest_shortfall());
    if (add(best->stages) != MemoryFit::kFits && blind_first) {
      limits.blind = false;
      best = search.smallest(best->t, max_t_, limits);
      if (!best) return found_.note_shortfall(search.smallest_shortfall());
      add(best->stages);
    }
    for (double slack : options_.slacks)
      if (const auto stages = search.probe(best->t * slack, limits)) add(*stages);
  }

  const PlanRequest& request_;
  const SearchSpace& space_;
  const SweepOptions& options_;
  const DeviceBudget& budget_;
  Deadline deadline_;  // a copy: each thread asks its own
  Candidates found_;
  SearchLimits limits_;
  std::vector<double> memories_;
  double bound_ = 0, max_t_ = 0;
};

/// The rounds of a search: from a size in the middle outward, two at a time.
class Rounds {
 public:
  Rounds(const PlanRequest& request, const std::vector<SearchSpace>& spaces, const SweepOptions& options,
         const DeviceBudget& budget, const Deadline& deadline, Candidates& found)
      : request_(request), spaces_(spaces), options_(options), budget_(budget), deadline_(deadline), found_(found) {
    size_t elements = 0;
    for (const SearchSpace& space : spaces) elements = std::max(elements, space.elements());
    may_stop_ = elements > kManyElements;
  }

  void run(std::vector<RoundSizes> rounds) {
    // About four micro-batches for each device that can be a stage.
    const int64_t middle =
        std::max<int64_t>(1, request_.graph->batch.count / (4 * static_cast<int64_t>(budget_.devices)));
    const auto is_above = [&](const RoundSizes& round) {
      return round.size() > 1 || round.back().first.count > middle;
    };
    std::stable_sort(rounds.begin(), rounds.end(), [](const RoundSizes& a, const RoundSizes& b) {
      return std::pair(a.size(), a.back().first) < std::pair(b.size(), b.back().first);
    });
    const auto first_above = std::find_if(rounds.begin(), rounds.end(), is_above);
    std::vector<RoundSizes> below(std::make_reverse_iterator(first_above), rounds.rend());
    std::vector<RoundSizes> above(first_above, rounds.end());
    for (size_t i = 0; i < std::max(below.size(), above.size()); ++i) {
      std::vector<RoundSizes*> wave;
      std::vector<std::vector<RoundSizes>*> sides;
      for (auto* side : {&below, &above})
        if (i < side->size() && is_promising((*side)[i])) {
          wave.push_back(&(*side)[i]);
          sides.push_back(side);
        }
      const std::vector<double> steps = search(wave);
      for (size_t w = 0; w < wave.size(); ++w)
        if (may_stop_ && steps[w] > kFarFromBest * found_.min_step()) sides[w]->resize(i + 1);
    }
  }

 private:
  /// Whether the bound of such small micro-batches leaves room for a better step or objective.
  bool is_promising(const RoundSizes& round) const {
    const double bound = min_step(*request_.graph, *request_.cluster, round.back().first);
    if (bound >= request_.known_step) return false;
    return bound < found_.min_step() ||
           bound / static_cast<double>(request_.graph->batch.count) < found_.min_objective();
  }

  /// The best step of each round.
  std::vector<double> search(const std::vector<RoundSizes*>& wave) {
    std::vector<std::optional<Candidates>> results(wave.size() * spaces_.size());
    run_tasks(results.size(), request_.threads, [&](size_t i) {
      const RoundSizes& round = *wave[i / spaces_.size()];
      results[i].emplace(Task(request_, spaces_[i % spaces_.size()], options_, budget_, deadline_).run(round));
    });
    std::vector<double> steps(wave.size(), kInfinity);
    for (size_t i = 0; i < results.size(); ++i) {
      steps[i / spaces_.size()] = std::min(steps[i / spaces_.size()], results[i]->min_step());
      found_.absorb(std::move(*results[i]));
    }
    return steps;
  }

  const PlanRequest& request_;
  const std::vector<SearchSpace>& spaces_;
  const SweepOptions& options_;
  const DeviceBudget& budget_;
  const Deadline& deadline_;
  Candidates& found_;
  bool may_stop_ = false;
};

}  // namespace

void search_spaces(const PlanRequest& request, const std::vector<SearchSpace>& spaces, const SweepOptions& options,
                   const Deadline& deadline, Candidates& found) {
  const Result<DeviceBudget> budget = device_budget(request);
  if (!budget.ok()) return;
  std::vector<RoundSizes> rounds = rounds_of(request);
  Rounds(request, spaces, options, *budget, deadline, found).run(std::move(rounds));
}

}  // namespace graphpipe::partitioner
