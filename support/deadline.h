#pragma once
// When a search has to end: at its time limit, or when another thread says so.

#include <atomic>
#include <string>

#include "support/stopwatch.h"
#include "support/units.h"

namespace graphpipe {

class Deadline {
 public:
  /// `cancel` may be null; it outlives the deadline and its copies. The time runs from here on.
  Deadline(double seconds, const std::atomic<bool>* cancel) : limit_(seconds), cancel_(cancel) {}

  /// Since construction.
  double seconds() const { return watch_.seconds(); }
  /// Cheap enough to be asked once per state of a search.
  bool passed() const { return is_cancelled() || (limit_ < kInfinity && seconds() >= limit_); }
  /// Why it passed, in words. Needs: passed() was true.
  std::string reason() const { return is_cancelled() ? "the search was ended" : "the time limit was reached"; }

 private:
  bool is_cancelled() const { return cancel_ != nullptr && cancel_->load(std::memory_order_relaxed); }

  Stopwatch watch_;
  double limit_;
  const std::atomic<bool>* cancel_;
};

}  // namespace graphpipe
