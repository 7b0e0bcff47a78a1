#pragma once
// A range of addresses that stays where it is while the memory in it grows.

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace graphpipe::runtime {

/// Never given back: tensors may be released until the process ends.
class ArenaMemory {
 public:
  /// From here on the first `bytes` can be used without a page fault. False where the system refuses them: then what
  /// there was before stays.
  bool grow(int64_t bytes);
  int64_t bytes() const { return bytes_; }
  std::byte* at(int64_t offset) const { return base_ + offset; }
  /// Of any thread.
  bool contains(const void* data) const;
  int64_t offset_of(const void* data) const { return static_cast<const std::byte*>(data) - base_; }

 private:
  bool reserve(int64_t bytes);

  std::atomic<std::byte*> base_ = nullptr;
  std::atomic<int64_t> reserved_ = 0;  // 0 until the base is there
  int64_t committed_ = 0, bytes_ = 0;
};

}  // namespace graphpipe::runtime
