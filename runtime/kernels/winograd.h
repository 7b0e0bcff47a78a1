#pragma once
// 3x3 convolutions with strides and dilations of one on CPUs, by Winograd's method (wire/winograd.h): 1.1 to 3.0 times
// as fast as with all products (docs/performance.md, "Kernels"). Results differ from those by rounding, by some 1e-6 of
// their norm; but where elements are infinite or NaN, more of the same tiles' results are NaN, and sums of elements
// beyond 1e37 overflow. The number of threads changes no bit.

#include "wire/winograd.h"

namespace graphpipe::runtime {

/// Whether this processor has the instructions: without vectors of eight floats the transforms cost more than they
/// save.
bool has_winograd();

/// Element (y, x) of the tiled planes is made of those from (y - pad_top, x - pad_left) to two further in both
/// directions, or for the weight gradient goes with them. Outside of the planes that are read are zeros.
struct WinogradPass {
  wire::WinogradShape shape;
  /// Of the planes of `inner` channels.
  int64_t read_height = 0, read_width = 0;
  int64_t pad_top = 0, pad_left = 0;
  /// wire::winograd_floats of them.
  float* workspace = nullptr;
};

/// read [samples, inner, ..] to made [samples, rows, height, width]; weight [rows, inner, 3, 3], or where it
/// `is_turned` [inner, rows, 3, 3] and its elements in reverse, as an input gradient needs. Adds bias [rows] if it is
/// not null.
void winograd_planes(const WinogradPass& pass, const float* read, const float* weight, bool is_turned,
                     const float* bias, float* made);
/// x [samples, inner, ..] and gradient [samples, rows, height, width] to weights [rows, inner, 3, 3], or adds to them.
void winograd_weights(const WinogradPass& pass, const float* x, const float* gradient, float* weights, bool adds);

}  // namespace graphpipe::runtime
