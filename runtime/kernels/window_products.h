#pragma once
// Convolutions of planes in one group on CPUs as products of the weights by the windows: each window is a column of a
// matrix (im2col: Chellapilla et al., High Performance Convolutional Neural Networks for Document Processing, 2006).
// Of the matrix there is only a block at a time (wire/window_shape.h), in a cache, so that no pass takes the memory of
// all columns. The number of threads changes no bit.

#include "wire/window_shape.h"

namespace graphpipe::runtime {

struct WindowPass {
  wire::WindowShape shape;
  /// Channels of the results.
  int64_t results = 0;
  /// wire::window_floats of them.
  float* workspace = nullptr;
};

/// x [samples, channels, height, width] and weight [results, channels, kernel] to y [samples, results, places]; adds
/// bias [results] if it is not null.
void window_planes(const WindowPass& pass, const float* x, const float* weight, const float* bias, float* y);
/// gradient [samples, results, places] to that of x.
void window_input_gradient(const WindowPass& pass, const float* gradient, const float* weight, float* x_gradient);
/// To weights [results, channels, kernel], or adds to them.
void window_weights(const WindowPass& pass, const float* x, const float* gradient, float* weights, bool adds);

}  // namespace graphpipe::runtime
