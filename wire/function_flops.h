#pragma once
// Arithmetic of one element of norms and functions, as the cost model counts it and the calibration divides by it: with
// an exponential as ten operations, and the passes over a row that LibTorch's and our kernels take.

namespace graphpipe::wire {

inline constexpr double kGeluFlops = 14, kSoftmaxFlops = 14, kSoftmaxGradientFlops = 10;
/// Of rows, by LibTorch; of rows without a mean and of channels, by loops of our own.
inline constexpr double kLayerNormFlops = 20, kLayerNormGradientFlops = 26;
inline constexpr double kOwnNormFlops = 11, kOwnNormGradientFlops = 13;

}  // namespace graphpipe::wire
