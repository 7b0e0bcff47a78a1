#pragma once
// Two ways to compute the same, measured in rounds that alternate, so that a machine whose speed drifts moves both.

#include <algorithm>
#include <functional>

#include "runtime/profiling/measure_rates.h"
#include "support/units.h"

namespace graphpipe {

/// Seconds of the fastest call of each.
struct FastestOfTwo {
  double one = kInfinity, other = kInfinity;
};

inline FastestOfTwo fastest_of_two(const std::function<void()>& one, const std::function<void()>& other) {
  constexpr int kRounds = 5;
  FastestOfTwo fastest;
  for (int round = 0; round < kRounds; ++round) {
    fastest.one = std::min(fastest.one, runtime::seconds_of(one));
    fastest.other = std::min(fastest.other, runtime::seconds_of(other));
  }
  return fastest;
}

}  // namespace graphpipe
