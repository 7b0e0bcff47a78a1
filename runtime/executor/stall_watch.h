#pragma once
// Whether a wait is for ranks that work or for one that does not go on. A rank may rightly wait for long while others
// compute, so time alone says nothing: what the ranks on the way to the one that keeps it waiting do now is compared
// with what they did a stall time-out ago.

#include <chrono>
#include <functional>
#include <optional>
#include <vector>

#include "runtime/transport/channel.h"

namespace graphpipe::runtime {

/// Why a wait will not end.
struct Stall {
  /// The rank that made no progress; the waiting rank itself where ranks are deadlocked.
  int32_t culprit = -1;
  /// What the culprit does, where that is known.
  std::optional<Activity> last;
};

class StallWatch {
 public:
  /// Transport::activity_of, or what stands for it.
  using Lookup = std::function<std::optional<Activity>(int32_t rank)>;

  /// Of a wait of `rank`, one of `ranks`. Infinite seconds: it never finds a stall.
  StallWatch(double seconds, int32_t rank, int32_t ranks, Lookup lookup)
      : seconds_(seconds), rank_(rank), ranks_(ranks), lookup_(std::move(lookup)) {}

  /// Something moved.
  void restart();
  /// Call it again and again while nothing moves; `peer` is the rank that is waited for. Finds a stall once the chain
  /// of who waits for whom, from `peer` on, has done nothing new for the time-out and ends at a rank that computes the
  /// same action all along, that was stopped in its wait, or of which nothing is known; a rank that waits for itself
  /// works on something beside its actions. Or once it is a cycle and no rank at all has done anything new.
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
