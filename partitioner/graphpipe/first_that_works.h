#pragma once
// Bisection over times: what works at one works at every larger one.
//
// Example: of the times 1, 2, 4 and 8 s the third is tried first. Its plan takes 2 s only, so that 1 s alone is left to
// try. It has no plan: the answer, after two probes, is the plan of 2 s.

#include <algorithm>
#include <optional>
#include <vector>

#include "support/deadline.h"
#include "support/sort_unique.h"

namespace graphpipe::partitioner {

/// The answer at the smallest of the times at which `probe(time)` has one, else `best`, which is that of a time above
/// them all. An answer's `t` may be below the time that was asked for: the search goes on below it. After the deadline
/// the best one so far.
template <typename Answer, typename Probe>
Answer first_that_works(std::vector<double> times, Answer best, Deadline& deadline, Probe probe) {
  sort_unique(times);
  // The first `failed` times are too small; best.t, at found_at or above all, works.
  auto failed = times.begin(), found_at = times.end();
  while (failed < found_at && !deadline.passed()) {
    const auto middle = failed + (found_at - failed) / 2;
    if (std::optional<Answer> found = probe(*middle)) {
      found_at = std::lower_bound(times.begin(), middle, found->t);
      best = std::move(*found);
    } else {
      failed = middle + 1;
    }
  }
  return best;
}

}  // namespace graphpipe::partitioner
