#pragma once
// Depthwise convolutions and their two gradients, with loops of our own: planes [N, C, H, W], weights [C, h, w],
// results [N, C, places down, places right]. Elements are float, or the bits of bfloat16, computed with in float32.
// The number of threads changes no bit. Each element of a result, or of a plane's gradient, is a sum of the kernel's
// columns, however wide the processor's vectors are; a weight's gradient is as many sums as a vector has floats.

#include <cstdint>

#include "wire/window_shape.h"

namespace graphpipe::runtime {

/// Needs: wire::fits_depthwise(shape) for all of them. `bias` [C] may be null.
template <typename Element>
void depthwise_planes(const wire::WindowShape& shape, const Element* planes, const Element* weights,
                      const Element* bias, Element* results);
template <typename Element>
void depthwise_input_gradient(const wire::WindowShape& shape, const Element* gradients, const Element* weights,
                              Element* of_planes);
/// Adds to what stands in `of_weights` if `adds`.
template <typename Element>
void depthwise_weights(const wire::WindowShape& shape, const Element* planes, const Element* gradients,
                       Element* of_weights, bool adds);

}  // namespace graphpipe::runtime
