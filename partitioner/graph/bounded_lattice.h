#pragma once
// The downset lattice of a layer graph within a memory budget: the whole of it, or else what a beam search keeps. Size
// by size the beam keeps the sets with the smallest cut, and adds to each every node that can come next.
//
// Example: chains a -> b and c -> d, tensors of one byte, a beam of two sets of each size. Of {a, b}, {a, c} and {c, d}
// it drops {a, c}, which cuts both tensors; the two others cut none. Eight of the nine downsets are left.

#include <functional>
#include <span>

#include "partitioner/graph/downset_lattice.h"

namespace graphpipe::partitioner {

/// A last-in-first-out order of the nodes.
std::vector<uint32_t> lattice_order(const Dag& dag);

/// All downsets where they fit into `bytes`; else a beam of those with the smallest `cut` (of the layers in the set),
/// which keeps all prefixes of lattice_order. Nothing where `stop` ended it, or not even the beam fits.
std::optional<Lattice> bounded_lattice(const Dag& dag, double bytes,
                                       const std::function<double(std::span<const uint64_t>)>& cut,
                                       const std::function<bool()>& stop);

}  // namespace graphpipe::partitioner
