#pragma once
// Runs of layers along one order, as Alpa (OSDI 2022) forms them before its search over stages.
//
// Dynamic programming over (runs, end of the last run) finds the cheapest cut of the layers before that end whose
// boundaries carry no more than a limit; the smallest limit that has a cut is found by bisection.
//
// Example: a chain of 1, 2, 1 and 2 s in two runs, with 4, 8 and 4 bytes between the layers. A run has at most
// 1.5 * 6 / 2 = 4.5 s, so a cut behind the first layer is out, which leaves 5 s; of the other two the one behind the
// third carries less: 4 s and 2 s, 4 bytes.

#include <cstdint>
#include <vector>

#include "partitioner/cost_models/unit_prices.h"

namespace graphpipe::partitioner {

/// At most `count` runs of the topological order with the smallest ids first, none empty. No run has more work than
/// one and a half times the average, or than the largest layer where that is more. Among these the largest traffic
/// between runs is smallest, then the sum of the traffic, then the sum of squared work. Traffic: every output that
/// crosses, once. Of orders of more than 3000 layers only every k-th boundary is looked at.
std::vector<std::vector<uint32_t>> cluster_layers(const UnitPrices& prices, size_t count);

}  // namespace graphpipe::partitioner
