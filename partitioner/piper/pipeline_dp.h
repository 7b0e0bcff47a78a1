#pragma once
// Piper's search space solved by thresholds: linear pipelines over a lattice of downsets, each stage with a degree,
// replicas and variants, at the smallest bottleneck.
//
// Piper's own table holds the best bottleneck for every (set, devices, replicas). Asked instead "is there a pipeline
// within this bottleneck?", a set needs only its few (devices, replicas) that none undercuts, each next stage only its
// fewest replicas that meet the bottleneck, and sets whose rest is too much work for the devices left fall away. Some
// forty such questions give the optimum; each failed one is a proven bound, so the search can end at any time.
//
// Example: layers of 4, 2 and 2 s in a chain, four devices, N = 60, degree 1, no traffic. Within 2 s the last layer
// takes one device, the last two take two, all take four: there is one. Within 1.9 s they take 2, 3 and 5: there is
// none.

#include <functional>
#include <span>
#include <vector>

#include "partitioner/graph/downset_lattice.h"
#include "partitioner/piper/cost_model.h"
#include "support/units.h"

namespace graphpipe::partitioner {

struct PiperStageChoice {
  /// Ascending.
  std::vector<uint32_t> layers;
  int degree = 1, replicas = 1;
  /// Per layer.
  std::vector<int> variants;
};

struct PiperDpResult {
  /// In pipeline order; empty where no pipeline fits the memory, or none was found in time.
  std::vector<PiperStageChoice> stages;
  /// Seconds of a micro-batch; the bound holds for all pipelines over the lattice.
  double objective = kInfinity, bound = 0;
  /// False where `stop` ended it.
  bool complete = true;
  /// Whether each choice of variants was proven best.
  bool variants_proven = true;
  int64_t pairs = 0;
};

/// `stop` is asked now and then. `known`: a pipeline that the search has to beat, such as that of a smaller lattice; it
/// is returned where it does not.
PiperDpResult search_piper(const PiperCosts& costs, const Lattice& lattice, const std::function<bool()>& stop,
                           PiperDpResult known = {});

/// Whether any pipeline fits the memory.
bool has_piper_pipeline(const PiperCosts& costs, const Lattice& lattice, const std::function<bool()>& stop);

/// Seconds of the slowest stage of a pipeline; fills in the variants. `replicas_behind`: of stages behind the last one,
/// which count in the micro-batches in flight only.
double price_piper_pipeline(const PiperCosts& costs, std::vector<PiperStageChoice>& stages,
                            int64_t replicas_behind = 0);
/// No plan at all is faster: all work at the best degrees over all devices.
double min_piper_bottleneck(const PiperCosts& costs);

}  // namespace graphpipe::partitioner
