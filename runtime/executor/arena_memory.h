#pragma once
// A range of addresses that stays in place while the memory in it grows.

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace graphpipe::runtime {

/// Never freed: tensors may be released until the process ends.
class ArenaMemory {
 public:
  /// From here on the first `bytes` can be used without a page fault. Returns false if the system refuses; the previous
  /// size then remains.
  bool grow(int64_t bytes);
  int64_t bytes() const { return bytes_; }
  std::byte* at(int64_t offset) const { return base_ + offset; }
  /// May be called from any thread.
  bool contains(const void* data) const;
  int64_t offset_of(const void* data) const { return static_cast<const std::byte*>(data) - base_; }

 private:
  bool reserve(int64_t bytes);

  std::atomic<std::byte*> base_ = nullptr;
  std::atomic<int64_t> reserved_ = 0;  // 0 until the base is set
  int64_t committed_ = 0, bytes_ = 0;
};

}  // namespace graphpipe::runtime
