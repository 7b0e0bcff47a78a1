#pragma once
// Requests to end that arrive twice though they were made once. A signal to a group of processes (a shell's `kill %1`,
// `timeout`, an init system) reaches a launched process by itself and, a moment later, from its launcher, which passes
// its own on.

#include <time.h>

#include <atomic>
#include <cstdint>

namespace graphpipe {

enum class SignalKind : uint8_t {
  kFirst,
  kEcho,   // so soon after the first that nobody has made up their mind in between
  kAgain,  // asked for once more
};

/// Of a static lifetime, for a signal handler.
class SignalEcho {
 public:
  /// What the signal that has just come is. Async-signal-safe.
  SignalKind take() {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    const int64_t now = int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec + 1;
    int64_t first = 0;
    if (first_.compare_exchange_strong(first, now)) return SignalKind::kFirst;
    return now - first < kEchoNanoseconds ? SignalKind::kEcho : SignalKind::kAgain;
  }

 private:
  static constexpr int64_t kEchoNanoseconds = 500'000'000;
  static_assert(std::atomic<int64_t>::is_always_lock_free);
  std::atomic<int64_t> first_ = 0;  // 0: none yet
};

}  // namespace graphpipe
