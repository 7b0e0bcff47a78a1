#pragma once
// A plan graph priced for one unit of work, a mini-batch or a micro-batch, as planners of other projects see it:
// columns of plain numbers. Everything else about a node (its alternatives, its colocated set, what refuses to run it)
// they ask the plan graph.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "ir/imported_profile.h"
#include "ir/plan_graph.h"
#include "support/digraph.h"

namespace graphpipe::partitioner {

/// Layers are the nodes in the order of the profile's file (PlanGraph::file_order), by which the originals break ties;
/// without a file in the order of their ids.
struct UnitPrices {
  const ir::PlanGraph* graph = nullptr;
  std::vector<ir::PlanNodeId> nodes;
  IdMap<ir::PlanNodeId, uint32_t> layer_of;
  /// One unit of work on one accelerator, seconds: forward, and all of it.
  std::vector<double> forward, seconds;
  /// Bytes of the output of one unit of work (of a file: the largest of the edges), and of the weights.
  std::vector<double> output_bytes, weight_bytes;
  /// Placements (max-throughput): seconds on a CPU, bytes on an accelerator, seconds in which the output moves between
  /// an accelerator and host memory.
  std::vector<double> cpu_seconds, memory_bytes, transfer_seconds;
  /// Between layers, each pair once, in the order of the file; bytes of one unit of work.
  EdgeList edges;
  std::vector<double> edge_bytes;
  /// Seconds of one unit of the file's times, 1 or 0.001: planners that mix units like their originals need it.
  double time_unit_seconds = 1;

  /// The unit of objectives that are times, as the file has it: "s" or "ms", and how many make a second.
  std::string_view time_unit() const { return time_unit_seconds == 1 ? "s" : "ms"; }
  double units_per_second() const { return time_unit_seconds == 1 ? 1 : 1000; }
  uint32_t size() const { return static_cast<uint32_t>(nodes.size()); }
  const ir::PlanNode& node(uint32_t layer) const { return graph->nodes[nodes[layer]]; }
  bool is_backward(uint32_t layer) const { return node(layer).is_backward; }
  bool on_accelerator(uint32_t layer) const { return node(layer).refused_kinds.empty(); }
};

/// Needs: a verified graph with linear prices that outlives the answer; one sample is the unit of work.
UnitPrices unit_prices(const ir::PlanGraph& unit);
UnitPrices unit_prices(const ir::ImportedProfile& profile);

/// A plan graph whose sample is a micro-batch of `graph`, as a profile has it. Nodes that can recompute have a second
/// alternative for it. `bandwidth`: bytes per second between an accelerator and host memory. Needs: no backward halves.
ir::PlanGraph unit_of(const ir::PlanGraph& graph, Samples micro_batch, double bandwidth);

/// The alternatives of a node at one degree; empty where it has none of it.
std::span<const ir::NodeAlternative> alternatives_of(const ir::PlanNode& node, int degree);
/// The number among all alternatives of a node of the one that is `variant` among those of the degree; 0 where the node
/// has none.
int alternative_number(const ir::PlanNode& node, int degree, int variant);

/// Layers from smallest to largest among those whose predecessors are done.
std::vector<uint32_t> topological_layers(const UnitPrices& prices);

}  // namespace graphpipe::partitioner
