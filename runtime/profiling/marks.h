#pragma once
// The stopwatch of profiling programs: their generated functions begin it and mark the end of each step.

#include <chrono>
#include <cstdint>
#include <vector>

namespace graphpipe::runtime {

struct Stopwatch {
  int64_t last = 0;
  /// By mark: nanoseconds since it was last emptied.
  std::vector<int64_t> nanoseconds;
};
inline Stopwatch stopwatch;

inline int64_t stopwatch_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

inline void begin_marks() { stopwatch.last = stopwatch_now(); }

/// Adds the time since the last mark to this one. Needs: stopwatch.nanoseconds is long enough.
inline void mark(size_t index) {
  const int64_t now = stopwatch_now();
  stopwatch.nanoseconds[index] += now - stopwatch.last;
  stopwatch.last = now;
}

}  // namespace graphpipe::runtime
