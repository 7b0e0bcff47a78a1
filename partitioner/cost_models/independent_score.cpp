#include "partitioner/cost_models/independent_score.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace graphpipe::partitioner {

namespace {

// One part of a level's chain: a stage at the innermost level, a group of stages further out.
struct ChainPart {
  LayerSet layers;
  double seconds = 0;
  int replicas = 1;
};

double sum_of(const std::vector<double>& column, const LayerSet& layers) {
  double sum = 0;
  for (const uint32_t layer : layers) sum += column[layer];
  return sum;
}

class ChainScore {
 public:
  ChainScore(const UnitRequest& request, const UnitAnswer& answer)
      : request_(request),
        prices_(*request.prices),
        answer_(answer),
        model_(answer.model),
        members_(members_of(prices_, answer.plan)) {}

  RecomputedScore run() {
    const int levels = static_cast<int>(request_.machine.levels.size());
    score_.objective = seconds_of(levels - 1, 0, static_cast<int>(members_.size()));
    return score_;
  }

 private:
  /// Replicas of a stage within one copy of the groups around it.
  int replicas_of(int stage) const {
    int replicas = static_cast<int>(answer_.plan.choice[ir::StageId(static_cast<size_t>(stage))].devices.size());
    for (const StageGroup& group : answer_.groups)
      if (group.first <= stage && stage < group.first + group.count) replicas /= group.replicas;
    return replicas;
  }

  LayerSet layers_between(int first, int last) const {
    LayerSet layers;
    for (int s = first; s < last; ++s)
      layers.insert(members_[static_cast<size_t>(s)].begin(), members_[static_cast<size_t>(s)].end());
    return layers;
  }

  // Seconds of stages [first, last) as one chain of parts at a level; level 0 is the innermost.
  double seconds_of(int level, int first, int last) {
    std::vector<ChainPart> chain;
    if (level == 0) {
      for (int s = first; s < last; ++s) {
        const LayerSet layers = layers_between(s, s + 1);
        chain.push_back({.layers = layers, .seconds = sum_of(prices_.seconds, layers), .replicas = replicas_of(s)});
      }
    } else {
      bool grouped = false;
      for (const StageGroup& group : answer_.groups) {
        if (group.level != level || group.first < first || group.first >= last) continue;
        grouped = true;
        chain.push_back({.layers = layers_between(group.first, group.first + group.count),
                         .seconds = seconds_of(level - 1, group.first, group.first + group.count),
                         .replicas = group.replicas});
      }
      if (!grouped) return seconds_of(level - 1, first, last);
    }
    return chain_seconds(level, chain, layers_between(0, first));
  }

  double links(int level, bool first) const {
    if (!first && !model_.parallel_links_everywhere) return 1;
    double count = 1;
    for (int inner = 0; inner < level; ++inner)
      if (model_.links_of_all_levels || inner + 1 == level)
        count *= request_.machine.levels[static_cast<size_t>(inner)].count;
    return count;
  }

  double chain_seconds(int level, const std::vector<ChainPart>& chain, LayerSet before) {
    const double rate = request_.machine.levels[static_cast<size_t>(level)].bandwidth;
    double worst = 0;
    for (size_t p = 0; p < chain.size(); ++p) {
      const double d = chain[p].replicas;
      const double moved = model_.reduction_factor * sum_of(prices_.weight_bytes, chain[p].layers) * (d - 1) / d;
      double time = (chain[p].seconds + moved / (rate * links(level, p == 0))) / d;
      const double in = 2 * recomputed_boundary(prices_, before, model_.traffic) / (rate * d);
      before.insert(chain[p].layers.begin(), chain[p].layers.end());
      const double out = 2 * recomputed_boundary(prices_, before, model_.traffic) / (rate * d);
      const bool pays_in = p > 0, at_end = p + 1 == chain.size();
      const bool pays_out = p > 0 && (model_.group_end_pays_twice || !at_end);
      if (pays_in) time = std::max(time, in);
      if (pays_out) time = std::max(time, out);
      worst = std::max(worst, time);
      note_memory(chain, p);
    }
    return worst;
  }

  void note_memory(const std::vector<ChainPart>& chain, size_t p) {
    const bool from = model_.memory == MemoryRule::kCopiesFrom;
    if (!from && model_.memory != MemoryRule::kCopiesBehind) return;
    int devices = 0;
    for (size_t q = from ? p : p + 1; q < chain.size(); ++q) devices += chain[q].replicas;
    const int copies = (devices + chain[p].replicas - 1) / chain[p].replicas;
    score_.memory = std::max(score_.memory, copies * (sum_of(prices_.weight_bytes, chain[p].layers) +
                                                      sum_of(prices_.output_bytes, chain[p].layers)));
  }

  const UnitRequest& request_;
  const UnitPrices& prices_;
  const UnitAnswer& answer_;
  const CostModel& model_;
  const std::vector<LayerSet> members_;
  RecomputedScore score_;
};

// Planners that price a stage by what crosses its own boundary: Piper, Tarnawski, PipeDream-2BW.
class StageScore {
 public:
  StageScore(const UnitRequest& request, const UnitAnswer& answer)
      : request_(request),
        prices_(*request.prices),
        plan_(answer.plan),
        model_(answer.model),
        members_(members_of(prices_, answer.plan)) {}

  RecomputedScore run() {
    RecomputedScore score;
    double sum = 0;
    for (size_t s = 0; s < members_.size(); ++s) {
      sum += seconds(s);
      score.objective = std::max(score.objective, seconds(s));
      if (!is_on_cpu(s)) score.memory = std::max(score.memory, memory(s));
    }
    if (model_.score == Score::kIteration)
      score.objective = sum + static_cast<double>(std::max<int64_t>(1, request_.micro_batches) - 1) * score.objective;
    if (model_.score == Score::kThroughput) score.objective = 1 / score.objective;
    return score;
  }

  /// Seconds of one stage.
  double seconds(size_t s) {
    double work = 0, weights = 0;
    for (const uint32_t layer : members_[s]) {
      const ir::NodeAlternative* run = chosen(s, layer);
      work += is_on_cpu(s) ? prices_.cpu_seconds[layer] : run ? all_of(*run) : prices_.seconds[layer];
      weights += run ? run->weight_bytes : prices_.weight_bytes[layer];
      if (stage(s).recompute && !is_on_cpu(s)) work += forward_again(layer, run);
    }
    const double d = replicas(s);
    if (is_on_cpu(s)) return work / d;
    const double rate = request_.machine.levels.front().bandwidth, scale = model_.communication_scale;
    if (model_.overlap == Overlap::kMaxWithReduction) {
      // Each of the d pipelines reduces once for all micro-batches that fall to it.
      const auto of_each =
          static_cast<double>(std::max<int64_t>(1, request_.micro_batches) / std::ssize(stage(s).devices));
      const double received = arrival(s, true) + arrival(s, false);
      const double reduced = model_.reduction_factor * weights * (d - 1) / d;
      return std::max(work + received * scale, reduced / rate_over(stage(s).devices) * scale / of_each) / d;
    }
    const double every = std::max<double>(1, static_cast<double>(model_.reduction_every));
    const double reduction = model_.reduction_factor * weights * (d - 1) / d / every / rate * scale;
    const double traffic = model_.traffic == TrafficRule::kStageEdges       ? edge_bytes(s) / d / rate * scale
                           : model_.traffic == TrafficRule::kStageTransfers ? transfers(members_[s])
                                                                            : 0;
    return model_.overlap == Overlap::kAdd ? work / d + reduction + traffic : std::max(work / d + reduction, traffic);
  }

 private:
  const ir::StageChoice& stage(size_t s) const { return plan_.choice[ir::StageId(s)]; }
  double replicas(size_t s) const { return static_cast<double>(stage(s).devices.size()); }
  bool is_on_cpu(size_t s) const {
    return static_cast<int>(stage(s).devices.front().index()) >= request_.machine.devices();
  }
  size_t stage_of(uint32_t layer) const { return plan_.stage_of[prices_.nodes[layer]].index(); }

  /// The alternative that the plan names, or the first of the stage's degree.
  const ir::NodeAlternative* chosen(size_t s, uint32_t layer) const {
    const auto& ways = prices_.node(layer).alternatives;
    if (ways.empty()) return nullptr;
    if (!plan_.alternative.empty()) return &ways.at(static_cast<size_t>(plan_.alternative[prices_.nodes[layer]]));
    for (const ir::NodeAlternative& way : ways)
      if (way.degree == stage(s).degree) return &way;
    return nullptr;
  }

  static double all_of(const ir::NodeAlternative& way) {
    return way.seconds.forward.at(1.0) + way.seconds.input_gradient.at(1.0) + way.seconds.weight_gradient.at(1.0);
  }

  double forward_again(uint32_t layer, const ir::NodeAlternative* run) const {
    if (run != nullptr) return all_of(*run) / 3;
    return prices_.forward[layer] > 0 ? prices_.forward[layer] : prices_.seconds[layer] / 3;
  }

  using Messages = std::map<std::pair<uint32_t, size_t>, double>;

  // Bytes of tensors that come into a stage, or leave it, by producer and reading stage.
  Messages messages(size_t s, bool incoming) const {
    Messages largest;
    for (size_t edge = 0; edge < prices_.edges.size(); ++edge) {
      const auto [producer, reader] = prices_.edges[edge];
      const size_t from = stage_of(producer), to = stage_of(reader);
      if (from == to || (incoming ? to : from) != s) continue;
      double& bytes = largest[{producer, to}];
      bytes = std::max(bytes, prices_.edge_bytes[edge]);
    }
    return largest;
  }

  // Seconds until these messages have arrived, each in the pipeline in which it is slowest.
  double arrival(size_t s, bool incoming) const {
    double seconds = 0;
    for (const auto& [ends, bytes] : messages(s, incoming)) {
      const auto &from = stage(stage_of(ends.first)).devices, &to = stage(ends.second).devices;
      double slowest = 0;
      for (size_t pipeline = 0; pipeline < from.size(); ++pipeline)
        slowest = std::max(slowest, bytes / rate_over({from[pipeline], to.at(pipeline)}));
      seconds += slowest;
    }
    return seconds;
  }

  // Bytes per second of the smallest part of the machine that has all of these devices.
  double rate_over(const std::vector<ir::DeviceId>& devices) const {
    size_t part = 1;
    double rate = request_.machine.levels.front().bandwidth;
    if (!model_.level_of_devices) return rate;
    for (const MachineLevels::Level& level : request_.machine.levels) {
      part *= static_cast<size_t>(level.count);
      rate = level.bandwidth;
      if (std::ranges::all_of(devices, [&](ir::DeviceId id) { return id.index() / part == devices[0].index() / part; }))
        break;
    }
    return rate;
  }

  double edge_bytes(size_t s) const {
    double bytes = 0;
    const auto collective = [&](uint32_t layer, uint32_t neighbour, bool to) {
      const ir::NodeAlternative* run = chosen(s, layer);
      double extra = 0;
      if (run != nullptr)
        for (const auto& boundary : to ? run->to : run->from)
          if (boundary.neighbour == prices_.nodes[neighbour]) extra = boundary.bytes;
      return extra;
    };
    for (size_t edge = 0; edge < prices_.edges.size(); ++edge) {
      const auto [from, to] = prices_.edges[edge];
      const bool is_from = members_[s].contains(from), is_to = members_[s].contains(to);
      if (is_from && !is_to) bytes += 2 * (prices_.edge_bytes[edge] + collective(from, to, true));
      if (is_to && !is_from) bytes += 2 * (prices_.edge_bytes[edge] + collective(to, from, false));
    }
    return bytes;
  }

  double transfers(const LayerSet& inside) const {
    LayerSet crossing;
    for (const auto& [from, to] : prices_.edges)
      if (inside.contains(from) != inside.contains(to)) crossing.insert(from);
    return sum_of(prices_.transfer_seconds, crossing);
  }

  // PipeDream-2BW: 2 |W| + n |A|; where the stage recomputes 2 |W| + |A| + n |A of the input|.
  double two_versions(size_t s) const {
    const auto in_flight = static_cast<double>(members_.size());
    double weights = 0, activations = 0;
    bool is_measured = false;
    for (const uint32_t layer : members_[s]) {
      const ir::NodeAlternative* run = chosen(s, layer);
      weights += run ? run->fixed_bytes : 2 * prices_.weight_bytes[layer];
      activations += run ? run->kept_bytes : prices_.output_bytes[layer];
      // At degree 1, alternative 0 is the plain node; any other is a measured form that keeps less.
      is_measured =
          is_measured || (run != nullptr && !plan_.alternative.empty() && plan_.alternative[prices_.nodes[layer]] > 0);
    }
    double input = 0;
    for (const auto& [ends, bytes] : messages(s, true)) input += bytes;
    if (stage(s).recompute) return weights + activations + in_flight * input;
    return weights + in_flight * (is_measured ? std::max(activations, input) : activations);
  }

  double memory(size_t s) const {
    if (model_.memory == MemoryRule::kTwoVersions) return two_versions(s);
    size_t from_here = 0;
    for (size_t t = s; t < members_.size(); ++t) from_here += stage(t).devices.size();
    const auto items = static_cast<double>((from_here + stage(s).devices.size() - 1) / stage(s).devices.size());
    double bytes = 0;
    const auto in_flight = static_cast<double>(members_.size() - s);
    for (const uint32_t layer : members_[s]) {
      if (model_.memory == MemoryRule::kMeasured) bytes += prices_.memory_bytes[layer];
      const ir::NodeAlternative* run = chosen(s, layer);
      if (run == nullptr) continue;
      if (model_.memory == MemoryRule::kVariants) bytes += items * run->kept_bytes + run->fixed_bytes;
      if (model_.memory == MemoryRule::kSharedVariants)
        bytes += run->kept_bytes * in_flight / replicas(s) + run->fixed_bytes;
    }
    return bytes;
  }

  const UnitRequest& request_;
  const UnitPrices& prices_;
  const ir::Assignment& plan_;
  const CostModel& model_;
  const std::vector<LayerSet> members_;
};

UnitAnswer with_devices_as_stages(UnitAnswer answer) {
  std::map<std::vector<ir::DeviceId>, ir::StageId> whole;
  ir::Assignment pooled;
  for (const ir::StageId old : answer.plan.stage_of) {
    const ir::StageChoice& choice = answer.plan.choice[old];
    const auto [known, is_new] = whole.try_emplace(choice.devices, pooled.choice.size());
    if (is_new) pooled.choice.push_back(choice);
    pooled.stage_of.push_back(known->second);
  }
  answer.plan = std::move(pooled);
  answer.model.pools_devices = false;
  return answer;
}

bool is_chain(TrafficRule rule) {
  return rule == TrafficRule::kNone || rule == TrafficRule::kBoundaryTensors || rule == TrafficRule::kBoundaryAntichain;
}

/// Units per second of the unit "s", "ms" or "us". Needs: one of these.
double units_per_second(std::string_view unit) {
  static const std::map<std::string_view, double> kUnits = {{"s", 1}, {"ms", 1e3}, {"us", 1e6}};
  const auto found = kUnits.find(unit);
  GP_CHECK(found != kUnits.end());
  return found->second;
}

}  // namespace

std::vector<LayerSet> members_of(const UnitPrices& prices, const ir::Assignment& plan) {
  std::vector<LayerSet> members(plan.choice.size());
  for (const ir::PlanNodeId node : prices.graph->node_ids())
    members.at(plan.stage_of[node].index()).insert(prices.layer_of[node]);
  return members;
}

double recomputed_boundary(const UnitPrices& prices, const LayerSet& before, TrafficRule rule) {
  if (before.size() == prices.size()) return 0;
  LayerSet senders;
  if (rule == TrafficRule::kBoundaryTensors)
    for (const auto& [from, to] : prices.edges)
      if (before.contains(from) && !before.contains(to)) senders.insert(from);
  if (rule == TrafficRule::kBoundaryAntichain) {
    // For each last node x before the boundary: x, and each node before x that has a reader which is neither x nor
    // before it.
    std::map<uint32_t, LayerSet> into;
    LayerSet last = before;
    for (const auto& [from, to] : prices.edges) {
      into[to].insert(from);
      if (before.contains(to)) last.erase(from);
    }
    for (const uint32_t x : last) {
      senders.insert(x);
      LayerSet up{x};
      for (std::vector<uint32_t> open{x}; !open.empty();) {
        const uint32_t at = open.back();
        open.pop_back();
        for (const uint32_t from : into[at])
          if (up.insert(from).second) open.push_back(from);
      }
      for (const auto& [from, to] : prices.edges)
        if (from != x && up.contains(from) && !up.contains(to)) senders.insert(from);
    }
  }
  return sum_of(prices.output_bytes, senders);
}

double heaviest_block(const UnitPrices& prices, const ir::Assignment& plan) {
  double heaviest = 0;
  for (const LayerSet& layers : members_of(prices, plan)) {
    double block = 0;
    for (const uint32_t layer : layers) block += std::round(1e6 * prices.seconds[layer]);
    heaviest = std::max(heaviest, block);
  }
  return heaviest;
}

RecomputedScore recompute_score(const UnitRequest& request, const UnitAnswer& answer) {
  if (answer.model.pools_devices) return recompute_score(request, with_devices_as_stages(answer));
  if (answer.model.score == Score::kDapple) return {.objective = dapple_score(request, answer)};
  if (answer.model.score == Score::kBlocks) return {.objective = heaviest_block(*request.prices, answer.plan)};
  RecomputedScore score =
      is_chain(answer.model.traffic) ? ChainScore(request, answer).run() : StageScore(request, answer).run();
  if (answer.model.score != Score::kThroughput) score.objective *= units_per_second(answer.unit);
  return score;
}

}  // namespace graphpipe::partitioner
