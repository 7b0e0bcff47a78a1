#pragma once
// Ways to compute the same, measured in rounds that alternate, so that a machine whose speed drifts moves all of them.

#include <algorithm>
#include <array>
#include <functional>

#include "runtime/profiling/measure_rates.h"
#include "support/units.h"

namespace graphpipe {

/// Seconds of the fastest call of each.
template <typename... Calls>
std::array<double, sizeof...(Calls)> fastest_of(const Calls&... calls) {
  constexpr int kRounds = 5;
  const std::array<std::function<void()>, sizeof...(Calls)> ways = {calls...};
  std::array<double, sizeof...(Calls)> fastest;
  fastest.fill(kInfinity);
  for (int round = 0; round < kRounds; ++round)
    for (size_t i = 0; i < ways.size(); ++i) fastest[i] = std::min(fastest[i], runtime::seconds_of(ways[i]));
  return fastest;
}

}  // namespace graphpipe
