#pragma once
// Seeded layers with whole numbers, so that sums are exact. Equal seeds give equal graphs everywhere.

#include <string>
#include <utility>
#include <vector>

#include "tests/support/layers.h"
#include "tests/support/random_plan_graphs.h"

namespace graphpipe::tests {

/// Edges i -> j with i < j, each with a chance of 1 in `rarity`; every layer but the first few is reached.
inline std::vector<std::pair<size_t, size_t>> random_layer_edges(Dice& dice, size_t layers, size_t rarity) {
  std::vector<std::pair<size_t, size_t>> edges;
  for (size_t to = 1; to < layers; ++to) {
    bool reached = false;
    for (size_t from = 0; from < to; ++from)
      if (dice.below(rarity) == 0) {
        edges.emplace_back(from, to);
        reached = true;
      }
    if (!reached && dice.below(4) > 0) edges.emplace_back(dice.below(to), to);
  }
  return edges;
}

inline LayerTable layer_table(size_t layers, const std::vector<std::pair<size_t, size_t>>& edges) {
  LayerTable graph;
  for (size_t i = 0; i < layers; ++i)
    graph.layers.push_back({.id = ModelText(std::to_string(i)), .label = ModelText("layer")});
  for (const auto& [from, to] : edges) graph.edges.push_back({.from = LayerId(from), .to = LayerId(to)});
  return graph;
}

/// Degrees 1 and sometimes 2, one or two variants, the second slower and smaller. `uniform`: the variants of a degree
/// have the same weights and collectives.
inline LayerTable random_piper_layers(uint64_t seed, size_t layers, bool uniform) {
  Dice dice(seed);
  LayerTable graph = layer_table(layers, random_layer_edges(dice, layers, 3));
  for (LayerEdge& edge : graph.edges) edge.bytes = static_cast<double>(1 + dice.below(9));
  for (const LayerId id : graph.layer_ids()) {
    Layer& layer = graph.layers[id];
    for (int degree = 1; degree <= (dice.below(3) == 0 ? 1 : 2); ++degree) {
      LayerVariant plain{.seconds = static_cast<double>(2 + dice.below(20)) / degree,
                         .weight_bytes = static_cast<double>(dice.below(9)),
                         .memory_per_item = static_cast<double>(1 + dice.below(9)),
                         .memory_fixed = static_cast<double>(dice.below(5))};
      for (const LayerEdge& edge : graph.edges) {
        if (edge.to == id) plain.sync_from.push_back({edge.from, static_cast<double>(dice.below(3))});
        if (edge.from == id) plain.sync_to.push_back({edge.to, static_cast<double>(dice.below(3))});
      }
      LayerVariant small = plain;
      small.seconds += static_cast<double>(dice.below(6));
      small.memory_per_item = static_cast<double>(dice.below(4));
      if (!uniform) {
        small.weight_bytes += static_cast<double>(dice.below(5));
        for (LayerSync& sync : small.sync_from) sync.bytes += static_cast<double>(dice.below(4));
      }
      layer.degrees.push_back({.degree = degree, .variants = {plain}});
      if (dice.below(4) > 0) layer.degrees.back().variants.push_back(small);
    }
    layer.forward_seconds = layer.degrees.front().variants.front().seconds;
    layer.weight_bytes = layer.degrees.front().variants.front().weight_bytes;
  }
  return graph;
}

/// Forward layers, some with a backward layer of the same class, some backward layers without a forward one, some
/// classes of two, some layers that only a CPU runs.
inline LayerTable random_placement_layers(uint64_t seed, size_t forward) {
  Dice dice(seed);
  std::vector<std::pair<size_t, size_t>> edges = random_layer_edges(dice, forward, 3);
  const size_t forward_edges = edges.size();
  std::vector<size_t> mate(forward);
  size_t layers = forward;
  for (size_t& layer : mate) layer = dice.below(2) == 0 ? layers++ : forward;
  const size_t orphan = dice.below(3) == 0 ? layers++ : 0;
  for (size_t i = 0; i < forward; ++i)
    if (mate[i] != forward) edges.emplace_back(i, mate[i]);
  for (size_t i = 0; i < forward_edges; ++i) {
    const size_t from = mate[edges[i].second], to = mate[edges[i].first];
    if (from != forward && to != forward) edges.emplace_back(from, to);
  }
  if (orphan > 0 && mate.back() != forward) edges.emplace_back(mate.back(), orphan);
  LayerTable graph = layer_table(layers, edges);
  for (const LayerId id : graph.layer_ids()) {
    Layer& layer = graph.layers[id];
    layer.is_backward = id.index() >= forward;
    (layer.is_backward ? layer.backward_seconds : layer.forward_seconds) = static_cast<double>(1 + dice.below(9));
    layer.cpu_seconds = static_cast<double>(2 + dice.below(30));
    layer.on_accelerator = dice.below(12) > 0;
    layer.memory_bytes = static_cast<double>(dice.below(9));
    layer.transfer_seconds = static_cast<double>(dice.below(4));
    layer.color_class = static_cast<int64_t>(id.index());
  }
  for (size_t i = 0; i < forward; ++i)
    if (mate[i] != forward) graph.layers[LayerId(mate[i])].color_class = static_cast<int64_t>(i);
  if (forward > 3 && dice.below(3) == 0) graph.layers[LayerId(2)].color_class = 1;
  return graph;
}

/// `count` separate branches of `length` layers each with equal prices.
inline LayerTable equal_branches(size_t count, size_t length) {
  std::vector<std::pair<size_t, size_t>> edges;
  for (size_t branch = 0; branch < count; ++branch)
    for (size_t i = 1; i < length; ++i) edges.emplace_back(branch * length + i - 1, branch * length + i);
  LayerTable graph = layer_table(count * length, edges);
  for (Layer& layer : graph.layers) {
    layer.forward_seconds = 1;
    layer.backward_seconds = 2;
    layer.output_bytes = 1e6;
    layer.weight_bytes = 1e7;
    layer.cpu_seconds = 30;
    layer.memory_bytes = 1e7;
    layer.transfer_seconds = 1e-3;
  }
  for (LayerEdge& edge : graph.edges) edge.bytes = 1e6;
  return graph;
}

}  // namespace graphpipe::tests
