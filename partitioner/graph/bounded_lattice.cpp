#include "partitioner/graph/bounded_lattice.h"

#include <algorithm>

namespace graphpipe::partitioner {

namespace {

/// A search over more sets than this takes too long.
constexpr double kMaxSets = 500'000;
/// Sets of the beam where not all sets fit: enough for good plans, few enough to try all pairs.
constexpr size_t kMaxInBeam = 8'000;

}  // namespace

std::vector<uint32_t> lattice_order(const Dag& dag) { return last_in_first_out_order(dag.size(), dag.edges()); }

std::optional<Lattice> bounded_lattice(const Dag& dag, double bytes,
                                       const std::function<double(std::span<const uint64_t>)>& cut,
                                       const std::function<bool()>& stop) {
  // Per set: its bits, the steps to its neighbours, what a search keeps for it.
  const double bytes_per_set = static_cast<double>(dag.size()) / 8 + 250;
  const auto max_sets = static_cast<size_t>(std::clamp(bytes / bytes_per_set, 200.0, kMaxSets));
  std::optional<Lattice> all = Lattice::enumerate(dag, {.max_sets = max_sets, .max_bytes = bytes, .stop = stop});
  if (all || (stop && stop())) return all;
  const std::vector<uint32_t> order = lattice_order(dag);
  const size_t width = std::max<size_t>(4, std::min(kMaxInBeam, max_sets) / std::max<size_t>(1, dag.size()));
  return Lattice::beam(dag, width, order, cut, {.max_bytes = bytes, .stop = stop});
}

}  // namespace graphpipe::partitioner
