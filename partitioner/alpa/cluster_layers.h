#pragma once
// Runs of layers along one order, as Alpa (OSDI 2022) forms them before its search over stages.

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
