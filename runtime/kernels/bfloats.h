#pragma once
// bfloat16 on CPUs: casts, and what the kernels of this folder need to compute with tensors that are so small that a
// call of a library costs more than its work. They widen to float32, compute there, and round to the nearest, ties to
// even, where LibTorch's operators round too.

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace graphpipe::runtime {

/// x.to(type), without the way through the dispatcher between float32 and bfloat16 of contiguous tensors on a CPU.
at::Tensor cast(const at::Tensor& x, at::ScalarType type);

/// Whether the tensor is of bfloat16, on a CPU, and no gradient is recorded for it.
bool is_plain_bfloat(const at::Tensor& tensor);
/// And contiguous.
bool are_bfloats(const at::Tensor& tensor);
/// bfloat16 on the CPU, not set yet.
at::Tensor new_bfloats(at::IntArrayRef sizes);

/// Needs: are_bfloats(tensor).
const uint16_t* bits_of(const at::Tensor& tensor);
uint16_t* mutable_bits_of(const at::Tensor& tensor);

void widen(const uint16_t* from, int64_t count, float* to);
void narrow(const float* from, int64_t count, uint16_t* to);
/// A new tensor of such numbers.
at::Tensor narrowed(const float* from, at::IntArrayRef sizes);

}  // namespace graphpipe::runtime
