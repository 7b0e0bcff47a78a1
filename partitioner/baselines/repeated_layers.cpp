#include "partitioner/baselines/repeated_layers.h"

#include <algorithm>

#include "support/check.h"

namespace graphpipe::partitioner {
namespace {

constexpr std::string_view kRepeatedLayer = "ParallelTransformerLayer";

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

}  // namespace

RepeatedLayers repeated_layers(const UnitPrices& prices) {
  RepeatedLayers parts;
  const size_t count = prices.size();
  const Dag dag(count, prices.edges);
  const std::vector<uint32_t> order = last_in_first_out_order(count, prices.edges);
  // Whether a layer is, or follows, or leads to, a repeated one.
  std::vector<bool> is_repeated(count), follows(count), leads_to(count);
  for (const uint32_t layer : order) {
    is_repeated[layer] = prices.node(layer).description.raw() == kRepeatedLayer;
    follows[layer] = is_repeated[layer] ||
                     std::ranges::any_of(dag.predecessors(layer), [&](uint32_t from) { return follows[from]; });
  }
  for (auto layer = order.rbegin(); layer != order.rend(); ++layer)
    leads_to[*layer] = is_repeated[*layer] ||
                       std::ranges::any_of(dag.successors(*layer), [&](uint32_t next) { return leads_to[next]; });
  for (const uint32_t layer : order) {
    const bool is_between = follows[layer] && leads_to[layer];
    (is_between ? parts.repeated : leads_to[layer] ? parts.before : parts.behind).push_back(layer);
  }
  if (parts.repeated.empty()) parts.repeated.swap(parts.behind);
  return parts;
}

std::vector<std::vector<uint32_t>> equal_stages(const RepeatedLayers& layers, size_t count, Ends ends) {
  GP_CHECK(count >= 1 && count <= layers.repeated.size());
  std::vector<std::vector<uint32_t>> stages = runs_of(layers.repeated, count);
  if (ends == Ends::kApart) {
    stages.insert(stages.begin(), layers.before);
    stages.push_back(layers.behind);
  } else {
    stages.front().insert(stages.front().end(), layers.before.begin(), layers.before.end());
    stages.back().insert(stages.back().end(), layers.behind.begin(), layers.behind.end());
  }
  for (auto& stage : stages) std::ranges::sort(stage);
  return stages;
}

}  // namespace graphpipe::partitioner
