#include "driver/report/search_line.h"

#include <algorithm>
#include <cmath>

#include "support/stopwatch.h"
#include "support/text.h"
#include "support/units.h"

namespace graphpipe::driver {

std::string search_words(double seconds, size_t plans, double best_seconds) {
  std::string words = text(std::llround(seconds), " s");
  if (plans > 0) words += text(", ", plans, plans == 1 ? " plan" : " plans");
  if (std::isfinite(best_seconds)) words += ", best step " + human_seconds(best_seconds);
  return words + "; Ctrl-C ends it";
}

SearchLine::SearchLine(const Options& options) : progress_(options, "planning"), best_(kInfinity) {
  if (progress_.is_shown()) ticker_ = std::thread([this] { tick(); });
}

SearchLine::~SearchLine() {
  if (!ticker_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  ends_.notify_one();
  ticker_.join();
}

void SearchLine::timed(double step_seconds) {
  const std::lock_guard lock(mutex_);
  ++plans_;
  best_ = std::min(best_, step_seconds);
}

void SearchLine::tick() {
  const Stopwatch watch;
  std::unique_lock lock(mutex_);
  while (!ends_.wait_for(lock, std::chrono::seconds(1), [this] { return ended_; }))
    progress_.update(-1, search_words(watch.seconds(), plans_, best_));
}

}  // namespace graphpipe::driver
