#pragma once
// Counts the bytes that tensors hold on the CPU, and places those of steps: a c10 allocator in front of LibTorch's own.

#include <cstdint>

#include "runtime/executor/step_arena.h"

namespace graphpipe::runtime {

/// From here on CPU tensors are counted, and memory that they free stays with the process. Call once, before the first
/// tensor of the program.
void count_tensor_bytes();
/// Bytes held now, and the most held since the last reset. 0 before count_tensor_bytes().
int64_t tensor_bytes();
int64_t peak_tensor_bytes();
void reset_peak_tensor_bytes();

/// From here on steps have no arena.
void leave_out_arena();
/// Between the two, tensors that this thread makes lie in the arena of the process (step_arena.h). One thread at a
/// time: while another's step is under way nothing happens. Nothing happens before count_tensor_bytes() either.
void begin_arena_step(StepKind kind);
/// StepArena::plan_bytes().
void plan_arena(int64_t bytes);
void end_arena_step();
ArenaNumbers arena_numbers();

}  // namespace graphpipe::runtime
