#include "partitioner/baselines/equal_split.h"

#include <algorithm>

#include "partitioner/baselines/repeated_layers.h"

namespace graphpipe::partitioner {
namespace {

/// `layers`: those of each stage. A stage without layers takes devices and holds micro-batches in flight like any
/// other, but is not part of the answer.
void try_split(const PiperCosts& costs, const std::vector<std::vector<uint32_t>>& layers, EqualSplit& best) {
  const auto count = static_cast<int64_t>(layers.size());
  const std::vector<uint32_t>& first = layers.front().empty() ? layers[1] : layers.front();
  for (const int replicas : costs.replicas()) {
    if (count * replicas > std::min<int64_t>(costs.options().devices, costs.options().micro_batches)) break;
    for (size_t degree = 0; degree < costs.degrees().size(); ++degree) {
      const int width = costs.degrees()[degree];
      if (count * replicas * width > costs.options().devices) break;
      if (!costs.offers(first.front(), degree)) continue;
      std::vector<PiperStageChoice> stages;
      for (const auto& run : layers)
        if (!run.empty()) stages.push_back({.layers = run, .degree = width, .replicas = replicas, .variants = {}});
      const double objective = price_piper_pipeline(costs, stages, layers.back().empty() ? replicas : 0);
      if (objective < best.objective) best = {.stages = std::move(stages), .objective = objective};
    }
  }
}

}  // namespace

EqualSplit split_equally(const UnitPrices& prices, const PiperCosts& costs, bool pays_for_empty_ends) {
  EqualSplit best;
  const RepeatedLayers layers = repeated_layers(prices);
  const auto devices = static_cast<size_t>(costs.options().devices);
  for (size_t count = 1; count <= std::min(layers.repeated.size(), devices); ++count)
    try_split(costs, equal_stages(layers, count, Ends::kJoined), best);
  if (layers.before.empty() && layers.behind.empty()) return best;
  for (size_t count = 1; count <= layers.repeated.size() && count < devices; ++count) {
    std::vector<std::vector<uint32_t>> stages = equal_stages(layers, count, Ends::kApart);
    if (!pays_for_empty_ends) std::erase_if(stages, [](const auto& run) { return run.empty(); });
    if (stages.size() <= devices) try_split(costs, stages, best);
  }
  return best;
}

}  // namespace graphpipe::partitioner
