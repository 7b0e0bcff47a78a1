#pragma once
// The stopwatch of profiling programs: their generated functions start it and mark the end of each node.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "runtime/device/device.h"

namespace graphpipe::runtime {

struct Stopwatch {
  int64_t last = 0;
  /// By mark: nanoseconds since it was last reset.
  std::vector<int64_t> nanoseconds;
  /// If work is queued: the device's clock, where the time between two points counts for the mark of the second.
  DeviceClock* clock = nullptr;
  /// For each point of `clock`: its mark, or -1 for a start.
  std::vector<int64_t> points;
  /// Nothing is marked: to see how long the work takes without marks.
  bool is_off = false;
};
inline Stopwatch stopwatch;

inline int64_t stopwatch_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

inline void note_point(int64_t mark) {
  stopwatch.clock->point();
  stopwatch.points.push_back(mark);
}

inline void begin_marks() {
  if (stopwatch.is_off) return;
  if (stopwatch.clock != nullptr) note_point(-1);
  else stopwatch.last = stopwatch_now();
}

/// Adds the time since the last mark to this one. Needs: stopwatch.nanoseconds is long enough.
inline void mark(size_t index) {
  if (stopwatch.is_off) return;
  if (stopwatch.clock != nullptr) return note_point(static_cast<int64_t>(index));
  const int64_t now = stopwatch_now();
  stopwatch.nanoseconds[index] += now - stopwatch.last;
  stopwatch.last = now;
}

/// Forgets the time of all marks.
inline void clear_marks() { std::ranges::fill(stopwatch.nanoseconds, 0); }

/// Waits for the device if work is queued: afterwards stopwatch.nanoseconds has the time of all marks. Marks of
/// recorded calls (executor/recorded_calls.h) are to be kept: they are reached again without being made.
inline void finish_marks(bool keep) {
  if (stopwatch.clock == nullptr) return;
  const std::vector<int64_t> between = stopwatch.clock->nanoseconds_between(keep);
  for (size_t i = 0; i < between.size(); ++i)
    if (const int64_t mark = stopwatch.points[i + 1]; mark >= 0)
      stopwatch.nanoseconds[static_cast<size_t>(mark)] += between[i];
  if (!keep) stopwatch.points.clear();
}

/// Seconds that a mark takes, beside what it measures: reach() makes `marks` of them, of index 0, or has them made.
/// Whatever the marks have measured is forgotten.
template <typename Reach>
double seconds_of_a_mark(int marks, const Reach& reach) {
  clear_marks();
  reach();
  finish_marks(false);
  const double seconds = 1e-9 * static_cast<double>(stopwatch.nanoseconds[0]) / marks;
  clear_marks();
  return seconds;
}

}  // namespace graphpipe::runtime
