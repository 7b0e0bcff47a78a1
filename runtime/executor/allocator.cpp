#include "runtime/executor/allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <malloc.h>

#include <atomic>
#include <cstring>

namespace graphpipe::runtime {
namespace {

// The size stands in front of the data; as wide as LibTorch's alignment, so that the data keeps it.
constexpr size_t kPrefix = 64;
constexpr uint8_t kPriority = 1;

std::atomic<int64_t> held{0};
std::atomic<int64_t> peak{0};

void count(int64_t bytes) {
  const int64_t now = held.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t seen = peak.load(std::memory_order_relaxed);
  while (now > seen && !peak.compare_exchange_weak(seen, now, std::memory_order_relaxed)) {
  }
}

void release(void* data) {
  if (data == nullptr) return;
  auto* block = static_cast<std::byte*>(data) - kPrefix;
  int64_t bytes = 0;
  std::memcpy(&bytes, block, sizeof bytes);
  held.fetch_sub(bytes, std::memory_order_relaxed);
  c10::free_cpu(block);
}

class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device device(c10::DeviceType::CPU);
    if (bytes == 0) return {nullptr, nullptr, &release, device};
    auto* block = static_cast<std::byte*>(c10::alloc_cpu(bytes + kPrefix));
    const auto size = static_cast<int64_t>(bytes);
    std::memcpy(block, &size, sizeof size);
    count(size);
    return {block + kPrefix, block + kPrefix, &release, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
};

/// Steps allocate the same sizes again and again. By default the C library gives large blocks back to the system when
/// they are freed, and each new one costs a page fault for every 4 KiB; here they stay with the process.
void keep_freed_memory() {
#if defined(__GLIBC__)
  constexpr int kLargestThreshold = 32 << 20;  // the most that glibc takes
  constexpr int kNever = 1 << 30;
  mallopt(M_MMAP_THRESHOLD, kLargestThreshold);
  mallopt(M_TRIM_THRESHOLD, kNever);
  mallopt(M_TOP_PAD, kLargestThreshold);
#endif
}

}  // namespace

void count_tensor_bytes() {
  keep_freed_memory();
  static CountingAllocator allocator;
  c10::SetCPUAllocator(&allocator, kPriority);
}

int64_t tensor_bytes() { return held.load(std::memory_order_relaxed); }
int64_t peak_tensor_bytes() { return peak.load(std::memory_order_relaxed); }
void reset_peak_tensor_bytes() { peak.store(held.load(std::memory_order_relaxed), std::memory_order_relaxed); }

}  // namespace graphpipe::runtime
