#pragma once
// Convolutions of planes in one group and bfloat16 on CPUs as products of the weights by the windows (windows.h), for
// passes that wire::convolves_bfloats_by_products names. oneDNN's convolutions copy weights and activations to orders
// of their own in each call; its products take weights and whole planes as they lie. Other windows are columns, all of
// them at once.

#include <ATen/core/Tensor.h>

#include "wire/window_shape.h"

namespace graphpipe::runtime {

/// x [samples, channels, height, width] and weight [results, channels, kernel] to a new [samples, results, places];
/// adds bias [results] if it is defined. Operands are contiguous, here and below.
at::Tensor bfloat_window_planes(const wire::WindowShape& shape, const at::Tensor& x, const at::Tensor& weight,
                                const at::Tensor& bias);
/// gradient [samples, results, places] to that of x: each product is rounded, what windows share is added in float32.
at::Tensor bfloat_window_input_gradient(const wire::WindowShape& shape, const at::Tensor& gradient,
                                        const at::Tensor& weight);
/// To that of the weight, a matrix [results, channels * kernel]: one sum over all samples, rounded once.
at::Tensor bfloat_window_weights(const wire::WindowShape& shape, const at::Tensor& gradient, const at::Tensor& x);

}  // namespace graphpipe::runtime
