#pragma once
// The downset lattice of a layer graph within a memory budget.

#include <functional>
#include <span>

#include "partitioner/graph/downset_lattice.h"

namespace graphpipe::partitioner {

/// A last-in-first-out order of the nodes.
std::vector<uint32_t> lattice_order(const Dag& dag);

/// All downsets where they fit into `bytes`; else those of each size with the smallest `cut` (of the layers in the set)
/// and all prefixes of one order. Nothing where `stop` ended it,
/// or not even these fit.
std::optional<Lattice> bounded_lattice(const Dag& dag, double bytes,
                                       const std::function<double(std::span<const uint64_t>)>& cut,
                                       const std::function<bool()>& stop);

}  // namespace graphpipe::partitioner
