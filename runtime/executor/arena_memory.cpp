#include "runtime/executor/arena_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "support/integer_math.h"

namespace graphpipe::runtime {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;
/// Below this size, the unused part of a 2 MiB page costs more than the TLB misses it saves.
constexpr int64_t kMinForHugePages = 4 * kHugePage;

/// Pre-faults the pages, so that steps take no page faults.
void touch(std::byte* data, int64_t bytes) {
#if defined(MADV_POPULATE_WRITE)
  if (madvise(data, static_cast<size_t>(bytes), MADV_POPULATE_WRITE) == 0) return;
#endif
  const int64_t page = sysconf(_SC_PAGESIZE);
  for (int64_t offset = 0; offset < bytes; offset += page)
    *const_cast<volatile std::byte*>(data + offset) = std::byte{0};
}

}  // namespace

// Read the size first: it is written after the base.
bool ArenaMemory::contains(const void* data) const {
  const int64_t reserved = reserved_;
  if (reserved == 0) return false;
  const auto address = reinterpret_cast<uintptr_t>(data), begin = reinterpret_cast<uintptr_t>(base_.load());
  return address >= begin && address < begin + static_cast<uintptr_t>(reserved);
}

// Reserves address space only, as much as there is physical memory; less if a limit of the process forbids it.
bool ArenaMemory::reserve(int64_t bytes) {
  const int64_t all = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  for (int64_t size = std::max(all, bytes);; size = std::max(size / 2, bytes)) {
    const int64_t with_margin = round_up(size, kHugePage) + kHugePage;
    void* data =
        mmap(nullptr, static_cast<size_t>(with_margin), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data != MAP_FAILED) {
      const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(data));
      base_ = static_cast<std::byte*>(data) + (round_up(address, kHugePage) - address);
      reserved_ = round_up(size, kHugePage);
      return true;
    }
    if (size == bytes) return false;
  }
}

bool ArenaMemory::grow(int64_t bytes) {
  if (bytes <= bytes_) return true;
  if (base_ == nullptr && !reserve(bytes)) return false;
  const bool huge = bytes >= kMinForHugePages;
  const int64_t end = round_up(bytes, huge ? kHugePage : sysconf(_SC_PAGESIZE));
  if (end > reserved_) return false;
  if (end > committed_) {
    std::byte* const more = base_ + committed_;
    const int64_t size = end - committed_;
    if (mprotect(more, static_cast<size_t>(size), PROT_READ | PROT_WRITE) != 0) return false;
#if defined(MADV_HUGEPAGE)
    if (huge) madvise(base_, static_cast<size_t>(end), MADV_HUGEPAGE);
#endif
    touch(more, size);
    committed_ = end;
  }
  bytes_ = bytes;
  return true;
}

}  // namespace graphpipe::runtime
