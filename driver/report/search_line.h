#pragma once
// What a search that takes long has found so far, for who waits for it.

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "driver/cli/options.h"
#include "driver/report/report.h"

namespace graphpipe::driver {

/// A line on standard error that is rewritten while it lives, as Progress has it: from the first second on, and on a
/// terminal only.
class SearchLine {
 public:
  explicit SearchLine(const Options& options);
  ~SearchLine();
  SearchLine(const SearchLine&) = delete;
  SearchLine& operator=(const SearchLine&) = delete;

  /// A plan was timed: seconds of its step, infinity where it cannot be used. From any thread.
  void timed(double step_seconds);

 private:
  void tick();

  Progress progress_;
  std::mutex mutex_;
  std::condition_variable ends_;
  bool ended_ = false;
  size_t plans_ = 0;
  double best_ = 0;
  std::thread ticker_;  // only where the line is shown
};

/// "12 s, 143 plans, best step 77.2 ms; Ctrl-C ends it". `best_seconds`: of a step, infinity for none.
std::string search_words(double seconds, size_t plans, double best_seconds);

}  // namespace graphpipe::driver
