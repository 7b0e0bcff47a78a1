#include "partitioner/pipedream/planner.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>

#include "partitioner/cost_models/quirks.h"
#include "partitioner/pipedream/multi_level_dp.h"
#include "support/stopwatch.h"
#include "support/units.h"

namespace graphpipe::partitioner {

namespace {

constexpr std::array kPipeDreamQuirks = {
    quirks::kFreeTraffic,       quirks::kForksChargedAtCut,
    quirks::kGroupEndPaysTwice, quirks::kParallelLinksAtFirstStage,
    quirks::kLinksOfLevelBelow, quirks::kFirstSourceOnly,
    quirks::kOneCopyLess,
};

/// Nested searches are cubic in the downsets: of more than this many steps only the cuts of a few orders are searched.
constexpr double kMaxSteps = 5e10;
constexpr size_t kFewCuts = 350;
/// Cuts of each order that are searched first, so that a plan is there should the time run out.
constexpr size_t kFirstCuts = 48;
constexpr int kMaxRounds = 6;
constexpr double kMilliseconds = 1000;  // of a second

class PipeDream {
 public:
  explicit PipeDream(const UnitRequest& request)
      : request_(request),
        prices_(*request.prices),
        dag_(prices_.size(), prices_.edges),
        model_(pipedream_model(request)),
        deadline_(request.time_limit, request.cancel) {
    pipeline_limits_ = {.devices = request.machine.devices(),
                        .bandwidth = request.machine.levels.front().bandwidth,
                        .memory = request.machine.memory,
                        .replication = request.replication,
                        .use_fewer = request.use_fewer,
                        .model = model_,
                        .max_pairs = request.max_pairs};
  }

  Result<UnitAnswer> run() {
    const Stopwatch watch;
    GP_TRY_VOID(check_boundary_rule(prices_, model_.traffic));
    answer_.model = model_;
    answer_.unit = "ms";
    bound_ = work_bound();
    if (request_.machine.levels.size() == 1) plan_one_level();
    else plan_levels();
    if (!found_) return nothing_found();
    fill_plan();
    answer_.objective = kMilliseconds * found_->seconds;
    answer_.bound = kMilliseconds * std::min(bound_, found_->seconds);
    answer_.complete = !deadline_.passed();
    if (!answer_.complete) answer_.stopped = "the time limit or an interrupt ended the search";
    answer_.search_seconds = watch.seconds();
    return std::move(answer_);
  }

 private:
  struct Found {
    double seconds = 0;
    std::vector<std::vector<uint32_t>> layers;
    std::vector<int> replicas;
    std::vector<StageGroup> groups;
    std::vector<BitWords> cuts;
  };

  // All work over all devices, or the largest layer at its best number of replicas.
  double work_bound() const {
    const double quantum = quantum_of(prices_);
    const int devices = request_.machine.devices();
    int64_t total = 0;
    double bound = 0;
    for (uint32_t layer = 0; layer < prices_.size(); ++layer) {
      const int64_t ticks = std::llround(prices_.seconds[layer] / quantum);
      total += ticks;
      bound = std::max(bound, best_alone(static_cast<double>(ticks) * quantum, prices_.weight_bytes[layer]));
    }
    return std::max(bound, static_cast<double>(total) * quantum / devices);
  }

  double best_alone(double seconds, double weight_bytes) const {
    double best = seconds;
    const int devices = request_.replication ? request_.machine.devices() : 1;
    // With several levels, parallel links may be faster than any single one, so the reduction is left out.
    const bool has_reduction = request_.machine.levels.size() == 1;
    for (int replicas = 2; replicas <= devices; ++replicas) {
      const double d = replicas;
      const double reduction =
          has_reduction ? model_.reduction_factor * (d - 1) * weight_bytes / (d * pipeline_limits_.bandwidth) : 0;
      best = std::min(best, (seconds + reduction) / d);
    }
    return best;
  }

  // A bottleneck that every pipeline stays below.
  double max_seconds() const {
    double seconds = 0, bytes = 0;
    for (uint32_t layer = 0; layer < prices_.size(); ++layer) {
      seconds += prices_.seconds[layer];
      bytes += 4 * prices_.weight_bytes[layer] + 2 * prices_.output_bytes[layer];
    }
    double slowest = request_.machine.levels.front().bandwidth;
    for (const auto& level : request_.machine.levels) slowest = std::min(slowest, level.bandwidth);
    return 2 * (seconds + bytes / slowest) + 1e-12;
  }

  size_t table_budget() const { return static_cast<size_t>(request_.memory_budget / 8); }

  // `among`: only cuts that are among these sets; null: all.
  SetTable cuts_of_orders(size_t max_cuts, const SetTable* among = nullptr) const {
    SetTable sets(prices_.size());
    const size_t fits = table_budget() / (8 * sets.width() * sizeof(uint64_t)) + 2;
    for (const auto& order : cutting_orders(prices_.edges, prices_.output_bytes))
      add_prefixes(order, std::min(max_cuts, fits), sets);
    if (among == nullptr) return sets;
    SetTable seen(prices_.size());
    for (size_t set = 0; set < sets.size(); ++set)
      if (among->contains(sets[set])) seen.add(sets[set]);
    return seen;
  }

  // Every downset that the planner may cut at; false where they are too many, or take more than a quarter of the time.
  bool all_cuts(SetTable& sets) {
    Deadline deadline(request_.time_limit / 4, request_.cancel);
    return request_.has(quirks::kFirstSourceOnly) ? add_downsets_of_first_source(dag_, table_budget(), deadline, sets)
                                                  : add_all_downsets(dag_, table_budget(), deadline, sets);
  }

  void keep(const PricedDownsets& sets, double seconds, const std::vector<PipelineStage>& stages,
            std::vector<StageGroup> groups) {
    if (found_ && found_->seconds <= seconds) return;
    Found found{.seconds = seconds, .groups = std::move(groups)};
    for (const PipelineStage& stage : stages) {
      found.layers.push_back(sets.stage(stage.from, stage.to));
      found.replicas.push_back(stage.replicas);
      found.cuts.emplace_back(sets.sets()[stage.to], sets.sets()[stage.to] + sets.sets().width());
    }
    found_ = std::move(found);
  }

  // No cut at all: one stage for all layers, which takes no time to find.
  SetTable no_cuts() const { return cuts_of_orders(1); }

  // Returns a proven bound over these cuts.
  double search_pipeline(const SetTable& cuts) {
    if (found_ && deadline_.passed()) return bound_;
    return search_pipeline(cuts, deadline_);
  }

  double search_pipeline(const SetTable& cuts, Deadline& deadline) {
    const PricedDownsets sets(prices_, cuts, model_.traffic);
    OneLevelDp search(sets, pipeline_limits_, deadline);
    const auto pipeline = search.best(found_ ? found_->seconds : max_seconds(), bound_);
    answer_.states = std::max(answer_.states, static_cast<int64_t>(sets.size()) - 1);
    answer_.pairs += search.pairs();
    if (pipeline) keep(sets, pipeline->seconds, pipeline->stages, {});
    if (search.gave_up()) answer_.stopped = "as many pairs of sets were tried as one search may try";
    return search.bound();
  }

  // Cuts of a few orders, then those around the best of them.
  void search_few_cuts() {
    if (prices_.size() > 2 * kFewCuts) search_pipeline(cuts_of_orders(kFirstCuts));
    const SetTable orders = cuts_of_orders(prices_.size());
    search_pipeline(orders);
    for (int round = 0; round < kMaxRounds && found_ && !deadline_.passed(); ++round) {
      const double before = found_->seconds;
      SetTable near = orders;
      for (const BitWords& cut : found_->cuts) add_neighbours(dag_, cut.data(), 3 + round, 400, near);
      search_pipeline(near);
      if (found_->seconds >= before && round > 0) break;
    }
  }

  void plan_one_level() {
    // A quick upper bound, and a plan should the time run out; under PD6 these cuts may be better than what the
    // original sees, and are tried only where that is too much to search.
    Deadline never(kInfinity, nullptr);
    search_pipeline(no_cuts(), never);
    const bool is_original = request_.has(quirks::kFirstSourceOnly);
    if (!is_original) search_few_cuts();
    SetTable all(prices_.size());
    const bool is_exact = all_cuts(all);
    if (is_original && !is_exact) search_few_cuts();
    if (is_exact && all.size() > 2 * kFewCuts && !found_) search_pipeline(cuts_of_orders(kFirstCuts, &all));
    if (is_exact) bound_ = std::max(bound_, search_pipeline(all));
    else answer_.stopped = text("more than ", all.size(), " sets of layers: the cuts of a few orders were searched");
  }

  bool search_levels(const SetTable& cuts) {
    if (found_ && deadline_.passed()) return false;
    return search_levels(cuts, deadline_);
  }

  bool search_levels(const SetTable& cuts, Deadline& deadline) {
    const PricedDownsets sets(prices_, cuts, model_.traffic);
    MultiLevelDp search(sets, level_limits(), deadline);
    const auto found = search.best();
    answer_.states = std::max(answer_.states, static_cast<int64_t>(sets.size()) - 1);
    answer_.pairs += search.pairs();
    if (found) keep(sets, found->seconds, found->stages, found->groups);
    return found.has_value();
  }

  LevelLimits level_limits() const {
    return {.levels = request_.machine.levels,
            .memory = request_.machine.memory,
            .replication = request_.replication,
            .use_fewer = request_.use_fewer,
            .model = model_,
            .max_seconds = found_ ? found_->seconds : kInfinity};
  }

  bool is_small(const SetTable& sets) const {
    const LevelLimits limits = level_limits();
    const double max_steps = std::min(kMaxSteps, 20.0 * static_cast<double>(request_.max_pairs));
    return MultiLevelDp::work(sets.size(), limits) <= max_steps &&
           MultiLevelDp::table_bytes(sets.size(), limits) <= request_.memory_budget;
  }

  void plan_levels() {
    Deadline never(kInfinity, nullptr);
    search_levels(no_cuts(), never);
    SetTable all(prices_.size());
    if (all_cuts(all) && is_small(all)) {
      // A few cuts first, so that there is a plan should the time run out.
      if (all.size() > 2 * kFewCuts) search_levels(cuts_of_orders(kFirstCuts, &all));
      search_levels(all);
      if (found_ && !deadline_.passed()) bound_ = found_->seconds;
      return;
    }
    answer_.stopped = "too many sets of layers for nested levels: the cuts of a few orders were searched";
    SetTable few = cuts_of_orders(kFewCuts);
    for (size_t max_cuts = kFewCuts; !is_small(few) && max_cuts > 2; few = cuts_of_orders(max_cuts)) max_cuts /= 2;
    search_levels(few);
    // The cuts that the original sees are searched too if they are few enough, so that the plan is never worse than its
    // plan.
    SetTable seen(prices_.size());
    if (add_downsets_of_first_source(dag_, table_budget() / 8, deadline_, seen) && is_small(seen)) search_levels(seen);
  }

  Diagnostic nothing_found() {
    if (deadline_.passed())
      return {.code = Code::kInterrupted,
              .message = "the search ended before it found a plan",
              .hint = "give it more time"};
    if (!answer_.stopped.empty())
      return {.code = Code::kInterrupted,
              .message = answer_.stopped + ", and no plan was found",
              .hint = "use the planner graphpipe, which contracts large graphs"};
    const bool is_short = !request_.replication && prices_.size() < static_cast<uint32_t>(pipeline_limits_.devices);
    if (is_short || !std::isfinite(request_.machine.memory))
      return {.code = Code::kNoFeasiblePlan,
              .message = text("no linear pipeline uses all ", pipeline_limits_.devices, " devices"),
              .hint = "allow replication or fewer devices"};
    double bytes = 0;
    for (uint32_t layer = 0; layer < prices_.size(); ++layer)
      bytes = std::max(bytes, prices_.weight_bytes[layer] + prices_.output_bytes[layer]);
    return {.code = Code::kNoFeasiblePlan,
            .message = text("no linear pipeline fits ", request_.machine.memory,
                            " bytes per device; one copy of the largest layer takes ", bytes),
            .hint = "give devices more memory, or use more of them"};
  }

  // Per innermost group, by its first stage, the number of its first device: a group begins on a fresh unit of its
  // level, after all copies of the group before it within the same outer group.
  std::map<int, int> starts_of_groups() const {
    std::vector<int> unit{1};  // devices of one unit of each level
    for (const auto& level : request_.machine.levels) unit.push_back(unit.back() * level.count);
    std::map<int, int> starts;
    for (int level = static_cast<int>(request_.machine.levels.size()) - 1; level > 0; --level) {
      std::map<int, int> inner;
      int next = 0;
      for (const StageGroup& group : found_->groups) {
        if (group.level != level) continue;
        if (const auto outer = starts.find(group.first); outer != starts.end()) next = outer->second;
        inner[group.first] = next;
        next += group.replicas * unit[static_cast<size_t>(level)];
      }
      starts = std::move(inner);
    }
    return starts;
  }

  void fill_plan() {
    int next = 0;
    answer_.groups = found_->groups;
    const std::map<int, int> starts = starts_of_groups();
    for (size_t s = 0; s < found_->layers.size(); ++s) {
      if (const auto start = starts.find(static_cast<int>(s)); start != starts.end()) next = start->second;
      ir::StageChoice choice = on_devices(next, found_->replicas[s]);
      next += found_->replicas[s];
      add_copies(static_cast<int>(s), choice.devices);
      add_stage(prices_, found_->layers[s], std::move(choice), {}, answer_.plan);
    }
  }

  // Adds the devices of the copies that the groups around a stage make of it, innermost group first.
  void add_copies(int stage, std::vector<ir::DeviceId>& devices) const {
    size_t unit = 1;
    for (size_t level = 1; level < request_.machine.levels.size(); ++level) {
      unit *= static_cast<size_t>(request_.machine.levels[level - 1].count);
      for (const StageGroup& group : found_->groups) {
        if (group.level != static_cast<int>(level) || stage < group.first || stage >= group.first + group.count)
          continue;
        const size_t count = devices.size();
        for (size_t copy = 1; copy < static_cast<size_t>(group.replicas); ++copy)
          for (size_t i = 0; i < count; ++i) devices.emplace_back(devices[i].index() + copy * unit);
      }
    }
  }

  const UnitRequest& request_;
  const UnitPrices& prices_;
  const Dag dag_;
  const CostModel model_;
  Deadline deadline_;
  PipelineLimits pipeline_limits_;
  double bound_ = 0;
  std::optional<Found> found_;
  UnitAnswer answer_;
};

}  // namespace

std::span<const Quirk> pipedream_quirks() { return kPipeDreamQuirks; }

CostModel pipedream_model(const UnitRequest& request) {
  const bool has_traffic = request.charge_traffic && !request.has(quirks::kFreeTraffic);
  const bool has_limit = std::isfinite(request.machine.memory);
  return {.overlap = Overlap::kMax,
          .traffic = !has_traffic                              ? TrafficRule::kNone
                     : request.has(quirks::kForksChargedAtCut) ? TrafficRule::kBoundaryAntichain
                                                               : TrafficRule::kBoundaryTensors,
          .memory = !has_limit                          ? MemoryRule::kNone
                    : request.has(quirks::kOneCopyLess) ? MemoryRule::kCopiesBehind
                                                        : MemoryRule::kCopiesFrom,
          .reduction_factor = 4,
          .group_end_pays_twice = request.has(quirks::kGroupEndPaysTwice),
          .parallel_links_everywhere = !request.has(quirks::kParallelLinksAtFirstStage),
          .links_of_all_levels = !request.has(quirks::kLinksOfLevelBelow)};
}

Result<UnitAnswer> plan_pipedream(const UnitRequest& request) { return PipeDream(request).run(); }

}  // namespace graphpipe::partitioner
