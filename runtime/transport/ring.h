#pragma once
// A single-producer, single-consumer ring buffer of bytes in shared memory, and the futex that wakes a rank. Positions
// only grow; position modulo capacity is the offset. Large messages stream through in pieces.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

namespace graphpipe::runtime {

/// The ring's shared words; its bytes follow immediately.
struct RingWords {
  alignas(64) std::atomic<uint64_t> written;  // by the producer
  alignas(64) std::atomic<uint64_t> read;     // by the consumer
  alignas(64) char end[64];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

class Ring {
 public:
  Ring(void* memory, uint64_t capacity)
      : words_(static_cast<RingWords*>(memory)),
        data_(static_cast<std::byte*>(memory) + sizeof(RingWords)),
        capacity_(capacity) {}

  /// Copies as much of `bytes` as there is room for, at most `limit`; returns how much.
  size_t write(std::span<const std::byte> bytes, size_t limit);
  /// Fills as much of `bytes` as is available, at most `limit`; returns how much.
  size_t read(std::span<std::byte> bytes, size_t limit);

 private:
  RingWords* words_;
  std::byte* data_;
  uint64_t capacity_;
  // The other side's position as last seen: saves a cache miss while it suffices.
  uint64_t seen_ = 0;
};

/// A word that one rank sleeps on and all others ring.
struct Doorbell {
  alignas(64) std::atomic<uint32_t> rings;
  std::atomic<uint32_t> sleepers;

  void ring();
  /// Sleeps until the number of rings differs from `seen`, or the time has passed. `may_spin`: the core belongs to this
  /// rank.
  void wait(uint32_t seen, std::chrono::microseconds longest, bool may_spin);
};

}  // namespace graphpipe::runtime
