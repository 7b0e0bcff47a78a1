#pragma once
// Counts the bytes that tensors hold on the CPU: a c10 allocator in front of LibTorch's own.

#include <cstdint>

namespace graphpipe::runtime {

/// From here on CPU tensors are counted, and memory that they free stays with the process. Call once, before the first
/// tensor of the program.
void count_tensor_bytes();
/// Bytes held now, and the most held since the last reset. 0 before count_tensor_bytes().
int64_t tensor_bytes();
int64_t peak_tensor_bytes();
void reset_peak_tensor_bytes();

}  // namespace graphpipe::runtime
