#include "partitioner/alpa/planner.h"

#include <algorithm>

#include "partitioner/alpa/cluster_layers.h"
#include "partitioner/cost_models/plan_price.h"
#include "partitioner/piper/cost_model.h"
#include "support/deadline.h"
#include "support/units.h"

namespace graphpipe::partitioner {
namespace {

constexpr size_t kMaxUnclustered = 24, kClusters = 16;

/// A way to execute a run of clusters on a submesh.
struct Config {
  int devices = 1, degree = 1, replicas = 1;
  bool last_variant = false;
  double seconds = 0;
  /// Most stages that may follow it, given the memory.
  int max_later = 0;
};

/// The best pipeline for the clusters from one on: the sum of its stage times, and its first stage.
struct Best {
  double sum = kInfinity;
  size_t end = 0;
  const Config* config = nullptr;
};

/// The fewest and the most devices of the pipelines with a given number of stages for the clusters from one on.
struct Reach {
  int min_devices = std::numeric_limits<int>::max(), max_devices = -1;
};

std::vector<int> submeshes(const MachineLevels& machine) {
  const int devices = machine.devices();
  const int machine_size = machine.levels.size() > 1 ? machine.levels.front().count : devices;
  std::vector<int> sizes;
  for (int size = 1; size <= machine_size; size *= 2) sizes.push_back(size);
  for (int64_t count = 1; count * machine_size <= devices; count *= 2)
    if (sizes.back() != count * machine_size) sizes.push_back(static_cast<int>(count * machine_size));
  return sizes;
}

PiperOptions options_of(const UnitRequest& request, VariantRule rule) {
  return {.devices = request.machine.devices(),
          .micro_batches = std::max<int64_t>(1, request.micro_batches),
          .bandwidth = request.machine.levels.front().bandwidth,
          .memory = request.machine.memory,
          .communication_scale = request.charge_traffic ? 1.0 : 0.0,
          .variants = rule,
          .max_degree = request.max_degree};
}

class Alpa {
 public:
  Alpa(const UnitRequest& request, const Deadline& deadline)
      : request_(request),
        prices_(*request.prices),
        deadline_(deadline),
        clusters_(cluster_layers(prices_, prices_.size() <= kMaxUnclustered ? kMaxUnclustered : kClusters)),
        count_(clusters_.size()),
        devices_(request.machine.devices()),
        configs_(count_ * count_) {
    collect_configs(PiperCosts(prices_, options_of(request, VariantRule::kFirst)), false);
    if (request.recompute) collect_configs(PiperCosts(prices_, options_of(request, VariantRule::kLast)), true);
  }

  bool run() {
    std::vector<double> candidates;
    for (const auto& configs : configs_)
      for (const Config& config : configs) candidates.push_back(config.seconds);
    std::ranges::sort(candidates);
    if (candidates.empty()) return true;
    const double min_sum = smallest_sum(candidates.back());
    if (min_sum == kInfinity) return true;
    keep();
    // Bisection for the smallest limit that gives a plan; nothing below it need be tried.
    size_t low = 0, high = candidates.size();
    while (low < high && !deadline_.passed()) {
      const size_t middle = low + (high - low) / 2;
      if (smallest_sum(candidates[middle]) < kInfinity) high = middle;
      else low = middle + 1;
    }
    double tried = candidates.back();
    for (; low < candidates.size(); ++low) {
      const double max_seconds = candidates[low];
      if (max_seconds == tried) continue;
      if (min_sum + max_seconds * static_cast<double>(micro_batches() - 1) >= objective_) break;
      if (deadline_.passed()) return false;
      tried = max_seconds;
      if (smallest_sum(max_seconds) < kInfinity) keep();
    }
    return !deadline_.passed();
  }

  int64_t micro_batches() const { return std::max<int64_t>(1, request_.micro_batches); }
  /// Seconds; infinite where there is no plan.
  double objective() const { return objective_; }
  const ir::Assignment& plan() const { return plan_; }
  /// A lower bound on the objective: the sum of the stage times and the largest of them are each at least the work over
  /// all devices.
  double bound() const {
    const PiperCosts costs(prices_, options_of(request_, VariantRule::kChoose));
    double work = 0;
    for (uint32_t layer = 0; layer < costs.dag().size(); ++layer) work += costs.min_work(layer);
    return work / devices_ * static_cast<double>(micro_batches());
  }
  int64_t intervals() const { return static_cast<int64_t>(count_ * (count_ + 1) / 2); }
  int64_t tried() const { return tried_; }

 private:
  /// Configurations of the clusters [from, end) by ascending time.
  std::vector<Config>& configs(size_t from, size_t end) { return configs_[from * count_ + end - 1]; }

  void collect_configs(const PiperCosts& costs, bool last_variant) {
    const std::vector<int> sizes = submeshes(request_.machine);
    PiperStage stage(costs);
    for (size_t from = 0; from < count_; ++from) {
      stage.clear();
      for (size_t end = from + 1; end <= count_; ++end) {
        for (const uint32_t layer : clusters_[end - 1]) stage.add(layer);
        for (size_t degree = 0; degree < costs.degrees().size(); ++degree)
          for (const int size : sizes)
            add_config(costs, stage.sums(degree), size, degree, last_variant, configs(from, end));
      }
    }
    for (auto& configs : configs_) drop_dominated(configs);
  }

  /// Drops configurations for which another on equally many devices is as fast and allows as many later stages.
  static void drop_dominated(std::vector<Config>& configs) {
    std::ranges::stable_sort(configs, {}, [](const Config& config) {
      return std::tuple(config.devices, config.seconds, -config.max_later);
    });
    std::vector<Config> kept;
    for (const Config& config : configs)
      if (kept.empty() || kept.back().devices != config.devices || kept.back().max_later < config.max_later)
        kept.push_back(config);
    configs = std::move(kept);
  }

  void add_config(const PiperCosts& costs, const PiperStage::Sums& sums, int size, size_t degree, bool last_variant,
                  std::vector<Config>& configs) const {
    const int width = costs.degrees()[degree];
    if (sums.missing > 0 || size % width != 0 || (!request_.replication && size != width)) return;
    const int replicas = size / width;
    const auto fits = [&](double items) {
      return sums.per_item * items / replicas + sums.fixed <= request_.machine.memory;
    };
    int later = 0;
    if (!fits(1)) return;
    while (later + 1 < static_cast<int>(count_) && fits(later + 2)) ++later;
    const double busy = sums.seconds + costs.seconds_of_cut(sums.cut);
    configs.push_back({.devices = size,
                       .degree = width,
                       .replicas = replicas,
                       .last_variant = last_variant,
                       .seconds = (busy + costs.seconds_of_reduction(sums.weights, replicas)) / replicas,
                       .max_later = later});
  }

  Reach& reach(size_t stages, size_t from) { return reach_[stages * (count_ + 1) + from]; }
  Best& best(size_t stages, size_t from, int devices) {
    return table_[(stages * (count_ + 1) + from) * static_cast<size_t>(devices_ + 1) + static_cast<size_t>(devices)];
  }

  /// Tries the stage in front of every pipeline of the clusters behind it.
  void prepend(const Config& config, size_t stages, size_t from, size_t end) {
    const Reach behind = reach(stages - 1, end);
    const int max_devices = std::min(behind.max_devices, devices_ - config.devices);
    if (behind.min_devices > max_devices) return;
    const Best* after = &best(stages - 1, end, behind.min_devices);
    const Best* last = after + (max_devices - behind.min_devices);
    for (Best* here = &best(stages, from, behind.min_devices + config.devices); after <= last; ++after, ++here) {
      const double sum = config.seconds + after->sum;
      if (sum < here->sum) *here = {sum, end, &config};
    }
    Reach& own = reach(stages, from);
    own.min_devices = std::min(own.min_devices, behind.min_devices + config.devices);
    own.max_devices = std::max(own.max_devices, max_devices + config.devices);
  }

  /// The smallest sum of stage times of which none is above `max_seconds`; infinite where there is no plan.
  double smallest_sum(double max_seconds) {
    table_.assign((count_ + 1) * (count_ + 1) * static_cast<size_t>(devices_ + 1), {});
    reach_.assign((count_ + 1) * (count_ + 1), {});
    best(0, count_, 0).sum = 0;
    reach(0, count_) = {.min_devices = 0, .max_devices = 0};
    for (size_t stages = 1; stages <= count_; ++stages)
      // Each of the stages after this one needs a cluster.
      for (size_t from = count_ - stages + 1; from-- > 0;)
        for (size_t end = stages == 1 ? count_ : from + 1; end + stages <= count_ + 1; ++end)
          for (const Config& config : configs(from, end)) {
            if (config.seconds > max_seconds || config.max_later + 1 < static_cast<int>(stages)) continue;
            ++tried_;
            prepend(config, stages, from, end);
          }
    double sum = kInfinity;
    for (size_t stages = 1; stages <= count_; ++stages) sum = std::min(sum, best(stages, 0, devices_).sum);
    return sum;
  }

  /// Keeps the table's best plan over all numbers of stages, if it is better than the best known.
  void keep() {
    for (size_t stages = 1; stages <= count_; ++stages) {
      if (best(stages, 0, devices_).sum == kInfinity) continue;
      double largest = 0;
      size_t from = 0;
      int devices = devices_;
      for (size_t left = stages; left > 0; --left) {
        const Best& step = best(left, from, devices);
        largest = std::max(largest, step.config->seconds);
        devices -= step.config->devices;
        from = step.end;
      }
      const double total = best(stages, 0, devices_).sum + static_cast<double>(micro_batches() - 1) * largest;
      if (total >= objective_) continue;
      objective_ = total;
      plan_ = plan_of(stages);
    }
  }

  ir::Assignment plan_of(size_t stages) {
    ir::Assignment plan;
    size_t from = 0;
    int devices = devices_;
    for (; stages > 0; --stages) {
      const Best step = best(stages, from, devices);
      std::vector<uint32_t> layers;
      std::vector<int> variants;
      for (; from < step.end; ++from)
        for (const uint32_t layer : clusters_[from]) {
          layers.push_back(layer);
          variants.push_back(variant(layer, *step.config));
        }
      add_stage(prices_, layers, on_devices(devices_ - devices, step.config->replicas, step.config->degree), variants,
                plan);
      devices -= step.config->devices;
    }
    return plan;
  }

  int variant(uint32_t layer, const Config& config) const {
    const auto ways = alternatives_of(prices_.node(layer), config.degree);
    return ways.empty() || !config.last_variant ? 0 : static_cast<int>(ways.size()) - 1;
  }

  const UnitRequest& request_;
  const UnitPrices& prices_;
  const Deadline& deadline_;
  std::vector<std::vector<uint32_t>> clusters_;
  size_t count_;
  int devices_;
  std::vector<std::vector<Config>> configs_;
  /// [stages][first cluster][devices]
  std::vector<Best> table_;
  /// [stages][first cluster]
  std::vector<Reach> reach_;
  double objective_ = kInfinity;
  ir::Assignment plan_;
  int64_t tried_ = 0;
};

}  // namespace

Result<UnitAnswer> plan_alpa(const UnitRequest& request) {
  if (request.machine.devices() > 4096)
    return Diagnostic{.code = Code::kUsage,
                      .message = text(request.machine.devices(), " devices are more than this planner takes"),
                      .hint = "plan for at most 4096"};
  const Deadline deadline(request.time_limit, request.cancel);
  Alpa alpa(request, deadline);
  const bool complete = alpa.run();
  if (alpa.objective() == kInfinity)
    return complete ? Diagnostic{.code = Code::kNoFeasiblePlan,
                                 .message =
                                     text("no pipeline of submeshes fits ", request.machine.memory, " bytes a device"),
                                 .hint = "give the devices more memory, or plan for more devices"}
                    : Diagnostic{.code = Code::kInterrupted,
                                 .message = deadline.reason() + " before any plan was found",
                                 .hint = "give the search more time"};
  UnitAnswer answer{.plan = alpa.plan()};
  answer.model = {.score = Score::kIteration,
                  .overlap = Overlap::kAdd,
                  .traffic = TrafficRule::kStageEdges,
                  .memory = MemoryRule::kSharedVariants,
                  .communication_scale = request.charge_traffic ? 1.0 : 0.0,
                  .reduction_factor = 4,
                  .reduction_every = alpa.micro_batches()};
  answer.unit = "s";
  const PlanPrice price = price_plan(*request.prices, answer.plan, request.machine, answer.model);
  answer.objective = static_cast<double>(alpa.micro_batches() - 1) * price.bottleneck;
  for (const StagePrice& stage : price.stages) answer.objective += stage.total;
  answer.bound = complete ? answer.objective : std::min(answer.objective, alpa.bound());
  answer.complete = complete;
  if (!complete) answer.stopped = deadline.reason();
  answer.states = alpa.intervals();
  answer.pairs = alpa.tried();
  answer.search_seconds = deadline.seconds();
  return answer;
}

}  // namespace graphpipe::partitioner
