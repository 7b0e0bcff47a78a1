#include "runtime/executor/stall_watch.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace graphpipe::runtime {
namespace {

// Waits shorter than this fraction of the time-out, which is nearly all, do not look at any rank.
constexpr double kFirstMoments = 1.0 / 16;
// Of the time between two looks, at most this fraction of the time-out counts: a process that was stopped, or whose
// host slept, did not wait meanwhile, and neither did its peers.
constexpr double kMaxBetweenLooks = 1.0 / 8;

// Everything but the beats, which continue while a rank waits.
bool does_the_same(const Activity& a, const Activity& b) {
  const auto work = [](const Activity& activity) {
    return std::tuple(activity.op, activity.stage, activity.replica, activity.range.first, activity.range.last,
                      activity.step, activity.waits_for);
  };
  return work(a) == work(b);
}

bool waits(const Activity& before, const Activity& now) { return now.waits_for >= 0 && now.beats != before.beats; }

}  // namespace

void StallWatch::restart() {
  last_look_ = Clock::now();
  still_ = 0;
  before_.clear();
}

std::optional<Stall> StallWatch::look(int32_t peer) {
  const Clock::time_point now = Clock::now();
  const double passed = std::chrono::duration<double>(now - last_look_).count();
  still_ += std::min(passed, seconds_ * kMaxBetweenLooks);
  last_look_ = now;
  if (still_ < (before_.empty() ? seconds_ * kFirstMoments : seconds_)) return std::nullopt;
  std::vector<std::optional<Activity>> current = activities();
  if (!before_.empty())
    if (std::optional<Stall> stall = find(peer, current)) return stall;
  before_ = std::move(current);
  still_ = 0;
  return std::nullopt;
}

std::vector<std::optional<Activity>> StallWatch::activities() const {
  std::vector<std::optional<Activity>> all;
  for (int32_t rank = 0; rank < ranks_; ++rank) all.push_back(lookup_(rank));
  return all;
}

std::optional<Stall> StallWatch::find(int32_t peer, const std::vector<std::optional<Activity>>& now) const {
  int32_t rank = peer;
  for (int32_t hop = 0; hop < ranks_ && rank != rank_ && rank >= 0 && rank < ranks_; ++hop) {
    const std::optional<Activity>& then = before_[static_cast<size_t>(rank)];
    const std::optional<Activity>& current = now[static_cast<size_t>(rank)];
    if (!then || !current) return Stall{.culprit = rank, .last = current};
    if (!does_the_same(*then, *current)) return std::nullopt;
    if (!waits(*then, *current)) return Stall{.culprit = rank, .last = current};
    if (current->waits_for == rank) return std::nullopt;  // it works outside its actions, such as writing to disk
    rank = current->waits_for;
  }
  return find_deadlock(now);
}

// A rank publishes only one of the ranks that it waits for; what it does for others meanwhile may depend on another
// one. So the cycle is a deadlock only if no rank makes progress.
std::optional<Stall> StallWatch::find_deadlock(const std::vector<std::optional<Activity>>& now) const {
  Stall stall{.culprit = rank_, .last = std::nullopt};
  for (int32_t rank = 0; rank < ranks_; ++rank) {
    const std::optional<Activity>& then = before_[static_cast<size_t>(rank)];
    const std::optional<Activity>& current = now[static_cast<size_t>(rank)];
    if (rank == rank_ || !then || !current) continue;
    if (!does_the_same(*then, *current) || current->waits_for == rank) return std::nullopt;
    if (stall.culprit == rank_ && !waits(*then, *current)) stall = {.culprit = rank, .last = current};
  }
  return stall;
}

}  // namespace graphpipe::runtime
