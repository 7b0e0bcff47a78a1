#pragma once
// Distinguishes a wait for ranks that are working from a wait for one that has stalled. A rank may legitimately wait
// for long while others compute, so time alone says nothing: the current activity of the ranks along the chain of waits
// is compared with their activity one stall time-out ago.

#include <chrono>
#include <functional>
#include <optional>
#include <vector>

#include "runtime/transport/channel.h"

namespace graphpipe::runtime {

/// Why a wait will not end.
struct Stall {
  /// The rank that made no progress; the waiting rank itself if the ranks are deadlocked.
  int32_t culprit = -1;
  /// The culprit's activity, if it is known.
  std::optional<Activity> last;
};

class StallWatch {
 public:
  /// Transport::activity_of, or a substitute for it.
  using Lookup = std::function<std::optional<Activity>(int32_t rank)>;

  /// Watches a wait of `rank`, one of `ranks`. With infinite seconds it never finds a stall.
  StallWatch(double seconds, int32_t rank, int32_t ranks, Lookup lookup)
      : seconds_(seconds), rank_(rank), ranks_(ranks), lookup_(std::move(lookup)) {}

  /// Call it when something has moved.
  void restart();
  /// Call it repeatedly while nothing moves; `peer` is the rank that is waited for. Follows the chain of ranks that
  /// wait for each other, starting at `peer`. Finds a stall once no rank of the chain has changed its activity for the
  /// time-out and the chain ends at a rank that has been computing the same action throughout, was stopped in its wait,
  /// or of which nothing is known (a rank that waits for itself is working outside its actions); or once the chain is a
  /// cycle and no rank at all has changed its activity.
  std::optional<Stall> look(int32_t peer);

 private:
  using Clock = std::chrono::steady_clock;
  std::vector<std::optional<Activity>> activities() const;
  std::optional<Stall> find(int32_t peer, const std::vector<std::optional<Activity>>& now) const;
  std::optional<Stall> find_deadlock(const std::vector<std::optional<Activity>>& now) const;

  double seconds_;
  int32_t rank_, ranks_;
  Lookup lookup_;
  Clock::time_point last_look_ = Clock::now();
  double still_ = 0;                             // seconds of waiting since something moved, or since `before_`
  std::vector<std::optional<Activity>> before_;  // by rank; empty in the first moments of a wait
};

}  // namespace graphpipe::runtime
