#include "partitioner/cost_models/independent_score.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace graphpipe::partitioner {

namespace {

using Layers = std::set<LayerId>;

// Stages, or groups of stages, that stand beside each other in a row.
struct RowPart {
  Layers layers;
  double seconds = 0;
  int replicas = 1;
};

double weight(const LayerGraph& graph, const Layers& layers) {
  double bytes = 0;
  for (const LayerId id : layers) bytes += graph.layers[id].weight_bytes;
  return bytes;
}

double weight_and_output(const LayerGraph& graph, const Layers& layers) {
  double bytes = weight(graph, layers);
  for (const LayerId id : layers) bytes += graph.layers[id].output_bytes;
  return bytes;
}

class RowScore {
 public:
  RowScore(const LayerPlanRequest& request, const LayerPlanAnswer& answer)
      : request_(request), graph_(*request.graph), plan_(answer.plan), convention_(answer.terms.convention) {}

  RecomputedScore run() {
    const int levels = static_cast<int>(request_.machine.levels.size());
    score_.objective = seconds_of(levels - 1, 0, static_cast<int>(plan_.stages.size()));
    return score_;
  }

 private:
  // Time of stages [first, last) as one row of parts of a level, 0 the innermost.
  double seconds_of(int level, int first, int last) {
    std::vector<RowPart> row;
    if (level == 0) {
      for (int s = first; s < last; ++s) {
        const LayerStage& stage = plan_.stages[static_cast<size_t>(s)];
        RowPart part{.layers = {stage.layers.begin(), stage.layers.end()}, .replicas = stage.replicas};
        for (const LayerId id : stage.layers)
          part.seconds += graph_.layers[id].forward_seconds + graph_.layers[id].backward_seconds;
        row.push_back(part);
      }
    } else {
      bool grouped = false;
      for (const LayerGroup& group : plan_.groups) {
        if (group.level != level || group.first < first || group.first >= last) continue;
        grouped = true;
        RowPart part{.seconds = seconds_of(level - 1, group.first, group.first + group.count),
                     .replicas = group.replicas};
        for (int s = group.first; s < group.first + group.count; ++s)
          part.layers.insert(plan_.stages[static_cast<size_t>(s)].layers.begin(),
                             plan_.stages[static_cast<size_t>(s)].layers.end());
        row.push_back(part);
      }
      if (!grouped) return seconds_of(level - 1, first, last);
    }
    Layers before;
    for (int s = 0; s < first; ++s)
      before.insert(plan_.stages[static_cast<size_t>(s)].layers.begin(),
                    plan_.stages[static_cast<size_t>(s)].layers.end());
    return row_seconds(level, row, before);
  }

  double links(int level, bool first) const {
    if (!first && !convention_.parallel_links_everywhere) return 1;
    double count = 1;
    for (int inner = 0; inner < level; ++inner)
      if (convention_.links_of_all_levels || inner + 1 == level)
        count *= request_.machine.levels[static_cast<size_t>(inner)].count;
    return count;
  }

  double row_seconds(int level, const std::vector<RowPart>& row, Layers before) {
    const double rate = request_.machine.levels[static_cast<size_t>(level)].bandwidth;
    double worst = 0;
    for (size_t p = 0; p < row.size(); ++p) {
      const double d = row[p].replicas;
      const double moved = convention_.reduction_factor * weight(graph_, row[p].layers) * (d - 1) / d;
      double time = (row[p].seconds + moved / (rate * links(level, p == 0))) / d;
      const double in = 2 * recomputed_boundary(graph_, before, convention_.cut) / (rate * d);
      before.insert(row[p].layers.begin(), row[p].layers.end());
      const double out = 2 * recomputed_boundary(graph_, before, convention_.cut) / (rate * d);
      const bool pays_in = p > 0, at_end = p + 1 == row.size();
      const bool pays_out = p > 0 && (convention_.group_end_pays_twice || !at_end);
      if (pays_in) time = std::max(time, in);
      if (pays_out) time = std::max(time, out);
      worst = std::max(worst, time);
      note_memory(row, p);
    }
    return worst;
  }

  void note_memory(const std::vector<RowPart>& row, size_t p) {
    const bool from = convention_.copies == CopiesRule::kFrom;
    if (!from && convention_.copies != CopiesRule::kAfter) return;
    int devices = 0;
    for (size_t q = from ? p : p + 1; q < row.size(); ++q) devices += row[q].replicas;
    const int copies = (devices + row[p].replicas - 1) / row[p].replicas;
    score_.memory = std::max(score_.memory, copies * weight_and_output(graph_, row[p].layers));
  }

  const LayerPlanRequest& request_;
  const LayerGraph& graph_;
  const LayerPlan& plan_;
  const LayerConvention& convention_;
  RecomputedScore score_;
};

// Planners that price a stage by what crosses its own boundary: Piper, Tarnawski, PipeDream-2BW.
class StageScore {
 public:
  StageScore(const LayerPlanRequest& request, const LayerPlanAnswer& answer)
      : request_(request),
        graph_(*request.graph),
        plan_(answer.plan),
        terms_(answer.terms),
        convention_(answer.terms.convention) {
    for (size_t s = 0; s < plan_.stages.size(); ++s)
      for (const LayerId id : plan_.stages[s].layers) stage_of_[id] = s;
  }

  RecomputedScore run() {
    RecomputedScore score;
    double sum = 0;
    for (size_t s = 0; s < plan_.stages.size(); ++s) {
      sum += seconds(s);
      score.objective = std::max(score.objective, seconds(s));
      if (!plan_.stages[s].on_cpu) score.memory = std::max(score.memory, memory(s));
    }
    if (terms_.score == LayerScore::kIteration)
      score.objective = sum + static_cast<double>(plan_.micro_batches - 1) * score.objective;
    if (terms_.score == LayerScore::kThroughput) score.objective = 1 / score.objective;
    return score;
  }

  /// Seconds of every stage.
  double seconds(size_t s) {
    const LayerStage& stage = plan_.stages[s];
    const Layers inside(stage.layers.begin(), stage.layers.end());
    double work = 0, weights = 0;
    for (size_t i = 0; i < stage.layers.size(); ++i) {
      const Layer& layer = graph_.layers[stage.layers[i]];
      const LayerVariant* run = chosen(stage, i);
      work += stage.on_cpu ? layer.cpu_seconds : run ? run->seconds : layer.forward_seconds + layer.backward_seconds;
      weights += run ? run->weight_bytes : layer.weight_bytes;
      if (stage.recompute && !stage.on_cpu) work += forward_again(layer, run);
    }
    if (stage.on_cpu) return work / stage.replicas;
    const double rate = request_.machine.levels.front().bandwidth, scale = convention_.communication_scale;
    const double d = stage.replicas;
    if (convention_.overlap == Overlap::kMaxWithReduction) {
      // Each of d pipelines reduces once in the micro-batches that fall to it.
      const auto of_each = static_cast<double>(plan_.micro_batches / stage.replicas);
      const double received = arrival(s, true) + arrival(s, false);
      const double reduced = convention_.reduction_factor * weights * (d - 1) / d;
      return std::max(work + received * scale, reduced / rate_over(stage.devices) * scale / of_each) / d;
    }
    const double every = std::max<double>(1, static_cast<double>(convention_.reduction_every));
    const double reduction = convention_.reduction_factor * weights * (d - 1) / d / every / rate * scale;
    const double traffic = convention_.cut == CutRule::kStageEdges       ? edge_bytes(stage, inside) / d / rate * scale
                           : convention_.cut == CutRule::kStageTransfers ? transfers(inside)
                                                                         : 0;
    return convention_.overlap == Overlap::kAdd ? work / d + reduction + traffic
                                                : std::max(work / d + reduction, traffic);
  }

 private:
  const LayerVariant* chosen(const LayerStage& stage, size_t i) const {
    for (const LayerDegree& degree : graph_.layers[stage.layers[i]].degrees)
      if (degree.degree == stage.degree)
        return &degree.variants.at(static_cast<size_t>(stage.variants.empty() ? 0 : stage.variants[i]));
    return nullptr;
  }

  static double forward_again(const Layer& layer, const LayerVariant* run) {
    if (run != nullptr) return run->seconds / 3;
    const double seconds = layer.forward_seconds + layer.backward_seconds;
    return layer.forward_seconds > 0 ? layer.forward_seconds : seconds / 3;
  }

  using Messages = std::map<std::pair<LayerId, size_t>, double>;

  // Bytes of tensors that come into a stage, or leave it, by producer and reading stage.
  Messages messages(size_t s, bool incoming) const {
    Messages largest;
    for (const LayerEdge& edge : graph_.edges) {
      const size_t from = stage_of_.at(edge.from), to = stage_of_.at(edge.to);
      if (from == to || (incoming ? to : from) != s) continue;
      double& bytes = largest[{edge.from, to}];
      bytes = std::max(bytes, edge.bytes);
    }
    return largest;
  }

  // Seconds until they have arrived, in the pipeline that is slowest.
  double arrival(size_t s, bool incoming) const {
    double seconds = 0;
    for (const auto& [ends, bytes] : messages(s, incoming)) {
      const auto &from = plan_.stages[stage_of_.at(ends.first)].devices, &to = plan_.stages[ends.second].devices;
      double slowest = 0;
      for (size_t pipeline = 0; pipeline < from.size(); ++pipeline)
        slowest = std::max(slowest, bytes / rate_over({from[pipeline], to.at(pipeline)}));
      seconds += slowest;
    }
    return seconds;
  }

  // Bytes per second of the smallest part of the machine that has all of these devices.
  double rate_over(const std::vector<int>& devices) const {
    int part = 1;
    double rate = request_.machine.levels.front().bandwidth;
    if (!convention_.level_of_devices) return rate;
    for (const LayerMachine::Level& level : request_.machine.levels) {
      part *= level.count;
      rate = level.bandwidth;
      if (std::ranges::all_of(devices, [&](int device) { return device / part == devices[0] / part; })) break;
    }
    return rate;
  }

  double edge_bytes(const LayerStage& stage, const Layers& inside) const {
    double bytes = 0;
    const auto sync = [&](LayerId layer, LayerId neighbour, bool to) {
      const size_t i = static_cast<size_t>(std::ranges::find(stage.layers, layer) - stage.layers.begin());
      const LayerVariant* run = chosen(stage, i);
      double extra = 0;
      if (run != nullptr)
        for (const LayerSync& item : to ? run->sync_to : run->sync_from)
          if (item.neighbour == neighbour) extra = item.bytes;
      return extra;
    };
    for (const LayerEdge& edge : graph_.edges) {
      const bool from = inside.contains(edge.from), to = inside.contains(edge.to);
      if (from && !to) bytes += 2 * (edge.bytes + sync(edge.from, edge.to, true));
      if (to && !from) bytes += 2 * (edge.bytes + sync(edge.to, edge.from, false));
    }
    return bytes;
  }

  double transfers(const Layers& inside) const {
    Layers crossing;
    for (const LayerEdge& edge : graph_.edges)
      if (inside.contains(edge.from) != inside.contains(edge.to)) crossing.insert(edge.from);
    double seconds = 0;
    for (const LayerId id : crossing) seconds += graph_.layers[id].transfer_seconds;
    return seconds;
  }

  // PipeDream-2BW: 2 |W| + n |A|; where the stage recomputes 2 |W| + |A| + n |A of the input|.
  double two_versions(size_t s) const {
    const LayerStage& stage = plan_.stages[s];
    const auto in_flight = static_cast<double>(plan_.stages.size());
    double weights = 0, activations = 0;
    for (size_t i = 0; i < stage.layers.size(); ++i) {
      const LayerVariant* run = chosen(stage, i);
      weights += run ? run->memory_fixed : 2 * graph_.layers[stage.layers[i]].weight_bytes;
      activations += run ? run->memory_per_item : graph_.layers[stage.layers[i]].output_bytes;
    }
    double input = 0;
    for (const auto& [ends, bytes] : messages(s, true)) input += bytes;
    if (stage.recompute) return weights + activations + in_flight * input;
    const bool is_measured = std::ranges::any_of(stage.variants, [](int variant) { return variant > 0; });
    return weights + in_flight * (is_measured ? std::max(activations, input) : activations);
  }

  double memory(size_t s) const {
    if (convention_.copies == CopiesRule::kTwoVersions) return two_versions(s);
    const LayerStage& stage = plan_.stages[s];
    int from_here = 0;
    for (size_t t = s; t < plan_.stages.size(); ++t) from_here += plan_.stages[t].replicas;
    const int items = (from_here + stage.replicas - 1) / stage.replicas;
    double bytes = 0;
    const auto in_flight = static_cast<double>(plan_.stages.size() - s);
    for (size_t i = 0; i < stage.layers.size(); ++i) {
      if (convention_.copies == CopiesRule::kOnce) bytes += graph_.layers[stage.layers[i]].memory_bytes;
      const LayerVariant* run = chosen(stage, i);
      if (run == nullptr) continue;
      if (convention_.copies == CopiesRule::kVariants) bytes += items * run->memory_per_item + run->memory_fixed;
      if (convention_.copies == CopiesRule::kStages)
        bytes += run->memory_per_item * in_flight / stage.replicas + run->memory_fixed;
    }
    return bytes;
  }

  const LayerPlanRequest& request_;
  const LayerGraph& graph_;
  const LayerPlan& plan_;
  const LayerTerms& terms_;
  const LayerConvention& convention_;
  std::map<LayerId, size_t> stage_of_;
};

LayerPlanAnswer with_devices_as_stages(LayerPlanAnswer answer) {
  std::map<std::vector<int>, LayerStage> whole;
  for (const LayerStage& stage : answer.plan.stages) {
    LayerStage& device = whole[stage.devices];
    device.devices = stage.devices;
    device.on_cpu = stage.on_cpu;
    for (const LayerId id : stage.layers) device.layers.push_back(id);
  }
  answer.plan.stages.clear();
  for (auto& [devices, stage] : whole) answer.plan.stages.push_back(std::move(stage));
  answer.terms.convention.pools_devices = false;
  return answer;
}

bool is_row(CutRule rule) {
  return rule == CutRule::kNone || rule == CutRule::kBoundaryTensors || rule == CutRule::kBoundaryAntichain;
}

}  // namespace

double recomputed_boundary(const LayerGraph& graph, const std::set<LayerId>& before, CutRule rule) {
  if (before.size() == graph.layers.size()) return 0;
  Layers senders;
  if (rule == CutRule::kBoundaryTensors)
    for (const LayerEdge& edge : graph.edges)
      if (before.contains(edge.from) && !before.contains(edge.to)) senders.insert(edge.from);
  if (rule == CutRule::kBoundaryAntichain) {
    // Last layers x before the boundary; of each, what precedes it and is read by something that does not.
    std::map<LayerId, Layers> into;
    Layers last = before;
    for (const LayerEdge& edge : graph.edges) {
      into[edge.to].insert(edge.from);
      if (before.contains(edge.to)) last.erase(edge.from);
    }
    for (const LayerId x : last) {
      senders.insert(x);
      Layers up{x};
      for (std::vector<LayerId> open{x}; !open.empty();) {
        const LayerId at = open.back();
        open.pop_back();
        for (const LayerId from : into[at])
          if (up.insert(from).second) open.push_back(from);
      }
      for (const LayerEdge& edge : graph.edges)
        if (edge.from != x && up.contains(edge.from) && !up.contains(edge.to)) senders.insert(edge.from);
    }
  }
  double bytes = 0;
  for (const LayerId id : senders) bytes += graph.layers[id].output_bytes;
  return bytes;
}

double heaviest_block(const LayerGraph& graph, const LayerPlan& plan) {
  double heaviest = 0;
  for (const LayerStage& stage : plan.stages) {
    double block = 0;
    for (const LayerId id : stage.layers)
      block += std::round(1e6 * (graph.layers[id].forward_seconds + graph.layers[id].backward_seconds));
    heaviest = std::max(heaviest, block);
  }
  return heaviest;
}

double units_per_second(std::string_view unit) {
  static const std::map<std::string_view, double> kUnits = {{"s", 1}, {"ms", 1e3}, {"us", 1e6}};
  const auto found = kUnits.find(unit);
  GP_CHECK(found != kUnits.end());
  return found->second;
}

RecomputedScore recompute_score(const LayerPlanRequest& request, const LayerPlanAnswer& answer) {
  if (answer.terms.convention.pools_devices) return recompute_score(request, with_devices_as_stages(answer));
  if (answer.terms.score == LayerScore::kDapple) return {.objective = dapple_score(request, answer)};
  if (answer.terms.score == LayerScore::kBlocks) return {.objective = heaviest_block(*request.graph, answer.plan)};
  RecomputedScore score =
      is_row(answer.terms.convention.cut) ? RowScore(request, answer).run() : StageScore(request, answer).run();
  if (answer.terms.score != LayerScore::kThroughput) score.objective *= units_per_second(answer.unit);
  return score;
}

}  // namespace graphpipe::partitioner
