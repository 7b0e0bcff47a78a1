#pragma once
// Numbers in a row cut into runs whose largest sum is smallest: the min-max partition of a chain.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

namespace graphpipe {

/// Fills `runs` non-empty runs one after the other, each up to `limit`. Returns their ends, or nothing if not all
/// weights fit.
template <typename Number>
std::vector<size_t> fill_runs(const std::vector<Number>& weight, size_t runs, Number limit) {
  std::vector<size_t> ends;
  Number sum = 0;
  for (size_t i = 0; i < weight.size(); ++i) {
    const bool has_begun = i > (ends.empty() ? 0 : ends.back());
    const bool is_needed_later = weight.size() - i < runs - ends.size();
    if (has_begun && (sum + weight[i] > limit || is_needed_later)) {
      ends.push_back(i);
      sum = 0;
      if (ends.size() == runs) return {};
    }
    sum += weight[i];
    if (sum > limit) return {};
  }
  ends.push_back(weight.size());
  return ends;
}

template <typename Number>
Number largest_run(const std::vector<Number>& weight, const std::vector<size_t>& ends) {
  Number largest = 0;
  for (size_t run = 0, next = 0; run < ends.size(); ++run) {
    Number sum = 0;
    for (; next < ends[run]; ++next) sum += weight[next];
    largest = std::max(largest, sum);
  }
  return largest;
}

/// The number after this one of its type.
inline double next_above(double number) { return std::nextafter(number, std::numeric_limits<double>::infinity()); }
inline double next_below(double number) { return std::nextafter(number, 0.0); }
inline int64_t next_above(int64_t number) { return number + 1; }
inline int64_t next_below(int64_t number) { return number - 1; }

/// The ends of `runs` consecutive runs whose largest sum is smallest, found by bisection of the limit: what fits within
/// one fits within every larger one. Needs: no negative weight, no more runs than weights. Example: 4, 1 and 3 in two
/// runs are {4, 1} and {3} without a limit, which makes 5. Within 4.4 they are {4} and {1, 3}, which makes 4; within
/// less there are none.
template <typename Number>
std::vector<size_t> even_runs(const std::vector<Number>& weight, size_t runs) {
  using Limits = std::numeric_limits<Number>;
  std::vector<size_t> best = fill_runs(weight, runs, Limits::has_infinity ? Limits::infinity() : Limits::max());
  Number low = 0, high = largest_run(weight, best);
  while (low < high) {
    const Number middle = std::min<Number>(low + (high - low) / 2, next_below(high));
    const std::vector<size_t> ends = fill_runs(weight, runs, middle);
    if (ends.empty()) {
      low = next_above(middle);
    } else {
      high = largest_run(weight, ends);
      best = ends;
    }
  }
  return best;
}

}  // namespace graphpipe
