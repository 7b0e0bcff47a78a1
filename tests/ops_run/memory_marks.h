#pragma once
// What the steps of a generated function hold: the functions mark the end of each, as those of profiling programs do.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/executor/allocator.h"

namespace graphpipe::ops_run {

struct StepMemory {
  /// Bytes of tensors behind the step and what it released, and the most while it ran.
  int64_t held = 0, peak = 0;
};

struct MemoryMarks {
  int64_t at_first = 0;
  std::vector<StepMemory> steps;
};
inline MemoryMarks memory_marks;

inline void begin_marks() {
  runtime::reset_peak_tensor_bytes();
  memory_marks = {.at_first = runtime::tensor_bytes(), .steps = {}};
}

inline void mark(size_t) {
  memory_marks.steps.push_back({runtime::tensor_bytes(), runtime::peak_tensor_bytes()});
  runtime::reset_peak_tensor_bytes();
}

}  // namespace graphpipe::ops_run
