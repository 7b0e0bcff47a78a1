#include "runtime/executor/allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <malloc.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace graphpipe::runtime {
namespace {

// The size is stored before the data; the prefix is as wide as LibTorch's alignment, so that the data keeps it.
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

/// What precedes the data of a tensor outside the arena.
struct Prefix {
  int64_t bytes = 0;
  StepArena::Ticket ticket;
  bool kept = false;
};
static_assert(sizeof(Prefix) <= kPrefix);

/// Memory of requests that outlive their step, by size: a later step will ask for the same sizes.
class KeptBlocks {
 public:
  std::byte* take(int64_t bytes) {
    const std::lock_guard lock(mutex_);
    std::vector<std::byte*>& free = free_[bytes];
    if (free.empty()) return nullptr;
    std::byte* const block = free.back();
    free.pop_back();
    return block;
  }
  void put(int64_t bytes, std::byte* block) {
    const std::lock_guard lock(mutex_);
    free_[bytes].push_back(block);
  }

 private:
  std::mutex mutex_;
  std::unordered_map<int64_t, std::vector<std::byte*>> free_;
};

// Both live as long as the process: tensors may be released after the destructors of statics.
StepArena& arena() {
  static auto* const instance = new StepArena;
  return *instance;
}
KeptBlocks& kept_blocks() {
  static auto* const instance = new KeptBlocks;
  return *instance;
}
std::atomic<bool> has_arena{false};
/// Aligned at least as strictly as what the linker places after it: mold 1.10 starts the RELRO region here, and if the
/// code ends just below a page boundary, an unaligned byte lies on a page that is not mapped, so that the program does
/// not load.
alignas(64) thread_local bool in_step = false;

void release(void* data) {
  if (data == nullptr) return;
  if (arena().owns(data)) {
    held.fetch_sub(arena().release(data), std::memory_order_relaxed);
    return;
  }
  auto* const block = static_cast<std::byte*>(data) - kPrefix;
  Prefix prefix;
  std::memcpy(&prefix, block, sizeof prefix);
  held.fetch_sub(prefix.bytes, std::memory_order_relaxed);
  arena().note_release(prefix.ticket);
  if (prefix.kept) kept_blocks().put(prefix.bytes, block);
  else c10::free_cpu(block);
}

/// The data of a block outside the arena.
std::byte* ordinary_data(const StepArena::Grant& grant, int64_t bytes) {
  const Prefix prefix{.bytes = bytes, .ticket = grant.ticket, .kept = grant.source == StepArena::Source::kKept};
  std::byte* block = prefix.kept ? kept_blocks().take(bytes) : nullptr;
  if (prefix.kept && block == nullptr) arena().note_fallback();
  if (block == nullptr) block = static_cast<std::byte*>(c10::alloc_cpu(static_cast<size_t>(bytes) + kPrefix));
  std::memcpy(block, &prefix, sizeof prefix);
  return block + kPrefix;
}

class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t size) override {
    const c10::Device device(c10::DeviceType::CPU);
    if (size == 0) return {nullptr, nullptr, &release, device};
    const auto bytes = static_cast<int64_t>(size);
    const StepArena::Grant grant = in_step ? arena().request(bytes) : StepArena::Grant{};
    std::byte* const data = grant.data != nullptr ? grant.data : ordinary_data(grant, bytes);
    count(bytes);
    return {data, data, &release, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
};

/// Steps allocate the same sizes again and again. By default the C library returns large blocks to the system when they
/// are freed, and each new one costs a page fault for every 4 KiB; with these settings they stay with the process.
void keep_freed_memory() {
#if defined(__GLIBC__)
  constexpr int kLargestThreshold = 32 << 20;  // the largest value that glibc accepts
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
  has_arena = true;
}

int64_t tensor_bytes() { return held.load(std::memory_order_relaxed); }
int64_t peak_tensor_bytes() { return peak.load(std::memory_order_relaxed); }
void reset_peak_tensor_bytes() { peak.store(held.load(std::memory_order_relaxed), std::memory_order_relaxed); }

void leave_out_arena() { has_arena = false; }

void begin_arena_step(StepKind kind) { in_step = has_arena && arena().begin_step(kind); }

void plan_arena(int64_t bytes) { arena().plan_bytes(bytes); }

void end_arena_step() {
  if (in_step) arena().end_step();
  in_step = false;
}

ArenaNumbers arena_numbers() { return arena().numbers(); }

}  // namespace graphpipe::runtime
