#pragma once
// Counts the bytes that tensors hold on the CPU, and places those of steps: a c10 allocator that wraps LibTorch's own.

#include <cstdint>

#include "runtime/executor/step_arena.h"

namespace graphpipe::runtime {

/// From here on CPU tensors are counted, and the memory that they free stays with the process. Call once, before the
/// program's first tensor.
void count_tensor_bytes();
/// Bytes held now, and their peak since the last reset. 0 before count_tensor_bytes().
int64_t tensor_bytes();
int64_t peak_tensor_bytes();
void reset_peak_tensor_bytes();

/// Disables the arena for all later steps.
void leave_out_arena();
/// Between the two, the tensors that this thread makes lie in the process's arena (step_arena.h). One thread at a time:
/// a no-op while another thread's step is active, and before count_tensor_bytes().
void begin_arena_step(StepKind kind);
/// StepArena::plan_bytes().
void plan_arena(int64_t bytes);
void end_arena_step();
ArenaNumbers arena_numbers();

}  // namespace graphpipe::runtime
