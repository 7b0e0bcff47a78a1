#include "partitioner/cost_models/boundary_bytes.h"

#include <algorithm>

namespace graphpipe::partitioner {
namespace {

BitRows charged_as_last(const Dag& dag) {
  BitRows charged(dag.size(), dag.size());
  const BitRows before = ancestors_of(dag);
  for (uint32_t x = 0; x < dag.size(); ++x) {
    charged.insert(x, x);
    const auto is_not_before = [&](uint32_t reader) { return !before.contains(x, reader); };
    for (uint32_t p = 0; p < dag.size(); ++p)
      if (p != x && before.contains(x, p) && std::ranges::any_of(dag.successors(p), is_not_before))
        charged.insert(x, p);
  }
  return charged;
}

}  // namespace

BoundaryBytes::BoundaryBytes(const UnitPrices& prices, const Dag& dag, TrafficRule rule)
    : prices_(prices),
      dag_(dag),
      rule_(rule),
      charged_(rule == TrafficRule::kBoundaryAntichain ? charged_as_last(dag) : BitRows(0, 0)) {}

double BoundaryBytes::of(std::span<const uint64_t> set) const {
  if (rule_ == TrafficRule::kNone) return 0;
  if (rule_ == TrafficRule::kBoundaryAntichain) return of_antichain(set);
  double sum = 0;
  for_each_bit(set, [&](size_t x) {
    const auto is_outside = [&](uint32_t reader) { return !has_bit(set.data(), reader); };
    if (std::ranges::any_of(dag_.successors(static_cast<uint32_t>(x)), is_outside)) sum += prices_.output_bytes[x];
  });
  return sum;
}

double BoundaryBytes::of_antichain(std::span<const uint64_t> set) const {
  BitRows all(1, dag_.size());
  for_each_bit(set, [&](size_t x) {
    const auto is_inside = [&](uint32_t reader) { return has_bit(set.data(), reader); };
    if (std::ranges::any_of(dag_.successors(static_cast<uint32_t>(x)), is_inside)) return;  // not a last one
    for (size_t w = 0; w < all.width(); ++w) all[0][w] |= charged_[x][w];
  });
  double sum = 0;
  for_each_bit({all[0], all.width()}, [&](size_t x) { sum += prices_.output_bytes[x]; });
  return sum;
}

}  // namespace graphpipe::partitioner
