#include "partitioner/equal_split_layers.h"

#include <algorithm>

namespace graphpipe::partitioner {
namespace {

constexpr std::string_view kRepeatedLayer = "ParallelTransformerLayer";

/// The layers that are spread, in order, and those that go to the ends.
struct Parts {
  std::vector<uint32_t> before, repeated, behind;
};

Parts parts_of(const ir::LayerGraph& graph, const Dag& dag) {
  Parts parts;
  DagEdges edges;
  for (const ir::LayerEdge& edge : graph.edges)
    edges.emplace_back(static_cast<uint32_t>(edge.from.index()), static_cast<uint32_t>(edge.to.index()));
  const std::vector<uint32_t> order = last_in_first_out_order(dag.size(), edges);
  std::vector<bool> is_repeated(dag.size()), leads_to(dag.size());
  for (const uint32_t layer : order) {
    is_repeated[layer] = graph.layers[ir::LayerId(layer)].label.raw() == kRepeatedLayer;
    if (is_repeated[layer]) parts.repeated.push_back(layer);
  }
  if (parts.repeated.empty()) {
    parts.repeated = order;
    return parts;
  }
  for (auto layer = order.rbegin(); layer != order.rend(); ++layer)
    leads_to[*layer] = is_repeated[*layer] ||
                       std::ranges::any_of(dag.successors(*layer), [&](uint32_t next) { return leads_to[next]; });
  for (const uint32_t layer : order)
    if (!is_repeated[layer]) (leads_to[layer] ? parts.before : parts.behind).push_back(layer);
  return parts;
}

/// `count` runs; the last n mod count hold one layer more.
std::vector<std::vector<uint32_t>> runs_of(const std::vector<uint32_t>& layers, size_t count) {
  std::vector<std::vector<uint32_t>> runs(count);
  const size_t shorter = layers.size() / count, longer = layers.size() % count;
  auto next = layers.begin();
  for (size_t i = 0; i < count; ++i) {
    const auto end = next + static_cast<ptrdiff_t>(shorter + (i + longer >= count ? 1 : 0));
    runs[i].assign(next, end);
    next = end;
  }
  return runs;
}

std::vector<std::vector<uint32_t>> stages_of(const Parts& parts, size_t count, bool separate) {
  std::vector<std::vector<uint32_t>> stages = runs_of(parts.repeated, count);
  if (separate) {
    stages.insert(stages.begin(), parts.before);
    stages.push_back(parts.behind);
  } else {
    stages.front().insert(stages.front().end(), parts.before.begin(), parts.before.end());
    stages.back().insert(stages.back().end(), parts.behind.begin(), parts.behind.end());
  }
  for (auto& stage : stages) std::ranges::sort(stage);
  return stages;
}

void try_split(const PiperCosts& costs, const std::vector<std::vector<uint32_t>>& layers, EqualSplit& best) {
  const auto count = static_cast<int64_t>(layers.size());
  for (const int replicas : costs.replicas()) {
    if (count * replicas > std::min<int64_t>(costs.options().devices, costs.options().micro_batches)) break;
    for (size_t degree = 0; degree < costs.degrees().size(); ++degree) {
      const int width = costs.degrees()[degree];
      if (count * replicas * width > costs.options().devices) break;
      if (!costs.offers(layers.front().front(), degree)) continue;
      std::vector<PiperStageChoice> stages;
      for (const auto& run : layers)
        stages.push_back({.layers = run, .degree = width, .replicas = replicas, .variants = {}});
      const double objective = price_piper_row(costs, stages);
      if (objective < best.objective) best = {.stages = std::move(stages), .objective = objective};
    }
  }
}

}  // namespace

EqualSplit split_equally(const ir::LayerGraph& graph, const PiperCosts& costs) {
  EqualSplit best;
  const Parts parts = parts_of(graph, costs.dag());
  const auto devices = static_cast<size_t>(costs.options().devices);
  for (size_t count = 1; count <= std::min(parts.repeated.size(), devices); ++count)
    try_split(costs, stages_of(parts, count, false), best);
  if (parts.before.empty() || parts.behind.empty()) return best;
  for (size_t count = 1; count <= parts.repeated.size() && count + 2 <= devices; ++count)
    try_split(costs, stages_of(parts, count, true), best);
  return best;
}

}  // namespace graphpipe::partitioner
