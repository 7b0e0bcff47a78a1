#pragma once
// The covering knapsack: choose items so that their savings reach a need at the least cost. It decides which layers of
// a stage run in a slower form that takes less memory.
//
// Example: a need of 5, an item of cost 1 that saves 2 and one of cost 5 that saves 5. By cost per saving the first is
// taken, then the second: 6. The second alone costs 5. The fractional bound is 1 + 3 / 5 of 5 = 4.

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
