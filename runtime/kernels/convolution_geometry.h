#pragma once
// How a kernel goes over planes, as calls of generated code say it.

#include <ATen/core/Tensor.h>

#include "wire/window_shape.h"

namespace graphpipe::runtime {

/// Of the axes of a plane or a line; `pads` apply at both ends.
struct ConvolutionGeometry {
  at::IntArrayRef strides, pads, dilations;
};

/// The places of a kernel: x [N, C, H, W] and weight [.., .., h, w], or the same without H and h. Both
/// by their shapes.
wire::WindowShape window_shape(at::IntArrayRef x, at::IntArrayRef weight, const ConvolutionGeometry& geometry);

}  // namespace graphpipe::runtime
