#pragma once
// How long something has taken so far.

#include <chrono>

namespace graphpipe {

class Stopwatch {
 public:
  /// Since construction, by the monotonic clock.
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace graphpipe
