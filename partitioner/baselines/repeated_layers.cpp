#include "partitioner/baselines/repeated_layers.h"

#include <algorithm>

#include "support/check.h"
#include "support/digraph.h"

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
  std::vector<uint32_t> repeated;
  for (const uint32_t layer : order)
    if (prices.node(layer).description.raw() == kRepeatedLayer) repeated.push_back(layer);
  // Those among them count as following themselves, and as leading to themselves.
  BitSet follows(count), leads_to(count);
  for (const uint32_t layer : reached_from(repeated, [&](uint32_t from, auto visit) {
         for (const uint32_t next : dag.successors(from)) visit(next);
       }))
    follows.insert(layer);
  for (const uint32_t layer : reached_from(repeated, [&](uint32_t to, auto visit) {
         for (const uint32_t before : dag.predecessors(to)) visit(before);
       }))
    leads_to.insert(layer);
  for (const uint32_t layer : order) {
    const bool is_between = follows.contains(layer) && leads_to.contains(layer);
    (is_between ? parts.repeated : leads_to.contains(layer) ? parts.before : parts.behind).push_back(layer);
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
