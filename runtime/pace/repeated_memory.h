#pragma once
// Zeros of any length in little memory: a range of addresses in which the same few pages are mapped repeatedly. What is
// written there appears in all repetitions; adding zeros to zeros leaves zeros.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>

#include "runtime/program.h"

namespace graphpipe::runtime {

class RepeatedMemory {
 public:
  /// Throws RunError (kEnvironment) if the system has no such range left.
  explicit RepeatedMemory(int64_t bytes);
  ~RepeatedMemory();
  RepeatedMemory(const RepeatedMemory&) = delete;
  RepeatedMemory& operator=(const RepeatedMemory&) = delete;

  /// A tensor at the start of the range. Needs: it fits. Must not outlive the memory.
  at::Tensor tensor(const TensorRow& row, int64_t samples) const;

 private:
  std::byte* start_ = nullptr;
  size_t size_ = 0;
};

}  // namespace graphpipe::runtime
