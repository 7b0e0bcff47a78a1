#include "runtime/transport/ring.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>

namespace graphpipe::runtime {
namespace {

using Clock = std::chrono::steady_clock;

// A core that sleeps costs about 50 us: to wake up, and to run slower until it is warm. After a wait twenty times as
// long that no longer matters; until then spinning is free, since the core belongs to this rank.
constexpr std::chrono::microseconds kSpin{1000};

// Tells the core that it spins.
#if defined(__x86_64__)
void relax() { __builtin_ia32_pause(); }
#elif defined(__aarch64__)
void relax() { asm volatile("yield"); }
#else
void relax() {}
#endif

// Whether the number of rings has changed.
bool spin(const std::atomic<uint32_t>& rings, uint32_t seen) {
  const Clock::time_point end = Clock::now() + kSpin;
  while (Clock::now() < end) {
    for (int i = 0; i < 16; ++i) {
      relax();
      if (rings.load(std::memory_order_acquire) != seen) return true;
    }
  }
  return false;
}

}  // namespace

size_t Ring::write(std::span<const std::byte> bytes, size_t limit) {
  const uint64_t position = words_->written.load(std::memory_order_relaxed);
  const size_t wanted = std::min(bytes.size(), limit);
  if (position - seen_ + wanted > capacity_) seen_ = words_->read.load(std::memory_order_acquire);
  const size_t count = std::min<uint64_t>(wanted, capacity_ - (position - seen_));
  if (count == 0) return 0;
  const size_t place = position % capacity_;
  const size_t before_end = std::min<size_t>(count, capacity_ - place);
  std::memcpy(data_ + place, bytes.data(), before_end);
  if (count > before_end) std::memcpy(data_, bytes.data() + before_end, count - before_end);
  words_->written.store(position + count, std::memory_order_release);
  return count;
}

size_t Ring::read(std::span<std::byte> bytes, size_t limit) {
  const uint64_t position = words_->read.load(std::memory_order_relaxed);
  const size_t wanted = std::min(bytes.size(), limit);
  if (seen_ - position < wanted) seen_ = words_->written.load(std::memory_order_acquire);
  const size_t count = std::min<uint64_t>(wanted, seen_ - position);
  if (count == 0) return 0;
  const size_t place = position % capacity_;
  const size_t before_end = std::min<size_t>(count, capacity_ - place);
  std::memcpy(bytes.data(), data_ + place, before_end);
  if (count > before_end) std::memcpy(bytes.data() + before_end, data_, count - before_end);
  words_->read.store(position + count, std::memory_order_release);
  return count;
}

void Doorbell::ring() {
  // Sequentially consistent with wait(): either the sleeper sees the new count or we see the sleeper.
  rings.fetch_add(1);
  if (sleepers.load() != 0) syscall(SYS_futex, &rings, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Doorbell::wait(uint32_t seen, std::chrono::microseconds longest, bool may_spin) {
  if (may_spin && spin(rings, seen)) return;
  const timespec time{.tv_sec = longest.count() / 1'000'000, .tv_nsec = longest.count() % 1'000'000 * 1000};
  sleepers.fetch_add(1);
  syscall(SYS_futex, &rings, FUTEX_WAIT, seen, &time, nullptr, 0);
  sleepers.fetch_sub(1);
}

}  // namespace graphpipe::runtime
