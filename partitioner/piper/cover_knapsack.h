#pragma once
// The covering knapsack: choose items so that their savings reach a need at the least cost. It decides which layers of
// a stage run in a slower form that takes less memory.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace graphpipe::partitioner {

/// Taking it costs `cost` (not negative) and saves `saving` (above 0).
struct CoverItem {
  double cost = 0, saving = 0;
};

struct Cover {
  /// Whether all savings together reach the need; the rest holds only if so.
  bool possible = false;
  /// Of the items chosen.
  double cost = 0;
  /// No choice costs less; equal to `cost` where the search finished.
  double bound = 0;
  /// Ascending.
  std::vector<uint32_t> chosen;
};

/// Takes items by cost per saving (ties: lower number) until the need is reached, and never gives one back. The bound
/// is that of the fractional problem.
Cover cover_greedy(std::span<const CoverItem> items, double need);

/// Branch and bound with the fractional bound; of items that another one dominates (cost not larger, saving not
/// smaller) none is taken without it. After `max_steps` it returns the best choice so far and the fractional bound.
Cover cover_exact(std::span<const CoverItem> items, double need, size_t max_steps = 200'000);

}  // namespace graphpipe::partitioner
