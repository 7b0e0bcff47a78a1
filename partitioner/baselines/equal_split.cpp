#include "partitioner/baselines/equal_split.h"

#include <algorithm>

#include "partitioner/baselines/repeated_layers.h"

namespace graphpipe::partitioner {
namespace {

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

EqualSplit split_equally(const LayerGraph& graph, const PiperCosts& costs) {
  EqualSplit best;
  const RepeatedLayers layers = repeated_layers(graph);
  const auto devices = static_cast<size_t>(costs.options().devices);
  for (size_t count = 1; count <= std::min(layers.repeated.size(), devices); ++count)
    try_split(costs, equal_stages(layers, count, Ends::kJoined), best);
  if (layers.before.empty() || layers.behind.empty()) return best;
  for (size_t count = 1; count <= layers.repeated.size() && count + 2 <= devices; ++count)
    try_split(costs, equal_stages(layers, count, Ends::kApart), best);
  return best;
}

}  // namespace graphpipe::partitioner
