#pragma once
// The smallest maximum load over linear pipelines (Tarnawski et al., NeurIPS 2020): each device takes the difference of
// two nested downsets of the fused graph.
//
//   load of an accelerator = its nodes' seconds there + seconds of every tensor with nodes inside and outside
//   load of a CPU          = its nodes' seconds there
//
// All states (set, accelerators used, CPUs used) within a limit are extended forwards; what is left must fit the
// devices left at that limit, so that near the optimum each set is left with one or two counts. A limit that no plan
// meets is a proven bound; the first limit that one meets gives the optimum.
//
// Example: nodes of 3, 1 and 2 s in a chain, tensors of 1 s between them, two accelerators. Cut behind the first node
// the loads are 3 + 1 and 1 + 2 + 1, behind the second 3 + 1 + 1 and 2 + 1: the optimum is 4 s.

#include <functional>
#include <limits>

#include "partitioner/graph/downset_lattice.h"
#include "partitioner/tarnawski/max_load_graph.h"
#include "support/units.h"

namespace graphpipe::partitioner {

struct MaxLoadOptions {
  int accelerators = 1, cpus = 0;
  double memory = kInfinity;
  /// Only plans below it are looked for.
  double below = kInfinity;
  std::function<bool()> stop;
  /// Pairs of sets that one search may look at.
  int64_t max_pairs = std::numeric_limits<int64_t>::max();
};

struct MaxLoadStage {
  /// Of the fused graph.
  std::vector<uint32_t> nodes;
  bool on_cpu = false;
};

struct MaxLoadResult {
  /// Empty where none was found.
  std::vector<MaxLoadStage> stages;
  /// Seconds; the bound holds for all pipelines over the lattice.
  double objective = kInfinity, bound = 0;
  /// False where `stop` ended it.
  bool complete = true;
  int64_t pairs = 0;
};

MaxLoadResult search_max_load(const MaxLoadGraph& graph, const Lattice& lattice, const MaxLoadOptions& options);

/// No plan has a smaller load: accelerator work that the CPUs cannot take over, spread over the accelerators; the
/// largest node.
double min_max_load(const MaxLoadGraph& graph, const MaxLoadOptions& options);

}  // namespace graphpipe::partitioner
