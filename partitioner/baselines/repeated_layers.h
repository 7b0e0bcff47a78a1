#pragma once
// The repeated block of a transformer and its split into runs of equal length: how people place such models by hand,
// and the search space of PipeDream-2BW's planner and of the equal split inside Piper.

#include <cstdint>
#include <vector>

#include "partitioner/cost_models/unit_prices.h"

namespace graphpipe::partitioner {

/// The layers that are spread over the stages, in last-in-first-out topological order, and those that go to the ends.
struct RepeatedLayers {
  std::vector<uint32_t> before, repeated, behind;
};

/// Layers by their numbers. Repeated: nodes described as ParallelTransformerLayer and what stands between two of them;
/// of a graph without such layers, all. Before: the others that lead to one of them.
RepeatedLayers repeated_layers(const UnitPrices& prices);

enum class Ends : uint8_t {
  kJoined,  // what stands before and behind belongs to the first and the last run
  kApart,   // it makes two more stages, one on each side
};

/// The layers of each stage, ascending: `count` runs of the repeated layers, of which the last n mod count hold one
/// more. No edge leads to an earlier stage. Needs: 1 <= count <= repeated layers.
std::vector<std::vector<uint32_t>> equal_stages(const RepeatedLayers& layers, size_t count, Ends ends);

}  // namespace graphpipe::partitioner
