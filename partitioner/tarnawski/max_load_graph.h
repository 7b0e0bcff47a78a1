#pragma once
// The graph that Tarnawski et al. (NeurIPS 2020) place on accelerators and CPUs: layers that have to share a device
// are one node, with the backward halves of their classes beside them. Only forward parts have an order; a stage is a
// difference of downsets of it.

#include <cstdint>
#include <vector>

#include "partitioner/cost_models/unit_prices.h"

namespace graphpipe::partitioner {

struct MaxLoadGraph {
  struct Node {
    /// Seconds on an accelerator and on a CPU, bytes on an accelerator.
    double accelerator = 0, cpu = 0, bytes = 0;
    bool on_accelerator = true;
    /// Of the prices, ascending.
    std::vector<uint32_t> layers;
  };
  /// Outputs that several nodes touch (produce or read): an accelerator that holds some but not all of these nodes pays
  /// once. Outputs with the same nodes are added up.
  struct Tensor {
    double seconds = 0;
    /// Ascending.
    std::vector<uint32_t> nodes;
  };

  std::vector<Node> nodes;
  std::vector<Tensor> tensors;
  /// Edges between forward parts, in the order of the file; may repeat.
  EdgeList edges;

  /// The layers of some nodes.
  std::vector<uint32_t> layers_of(const std::vector<uint32_t>& of) const {
    std::vector<uint32_t> layers;
    for (const uint32_t node : of) layers.insert(layers.end(), nodes[node].layers.begin(), nodes[node].layers.end());
    return layers;
  }
};

enum class Fusion : uint8_t {
  kClasses,      // what shares a class, cycles between classes, and free layers with one neighbour
  kBiconnected,  // also the sources of the edges of each biconnected component (emulation of PipeDream, quirk W4)
};

/// Steps 1 to 6 of the original: classes contracted; backward classes without a forward layer get one of no cost, with
/// the backward edges turned round; strongly connected components fused; forward layers that take no time and touch one
/// other node joined to it.
MaxLoadGraph fuse_nodes(const UnitPrices& prices, Fusion fusion);

/// What placements of any pattern are made of, so that each has a schedule: classes, and cycles between them, as
/// cost::fold_backward joins them; its edges are those of both directions, turned forward.
MaxLoadGraph fuse_for_schedules(const UnitPrices& prices);

}  // namespace graphpipe::partitioner
