#pragma once
// Parameters whose gradients are zero in exact arithmetic, so that what is left of them is rounding.
//
// BatchNorm takes the mean of each channel from its input, so the gradient that it gives its input adds up to zero in
// every channel. A bias before it adds the same number to all places of a channel: its gradient is that sum. This holds
// as well where the bias reaches BatchNorm through operators that make of such a number the same number at all places
// again: products with weights, convolutions, means of windows, other shapes, sums. A convolution or window with
// padding does so everywhere but at the border; such gradients are small beside their terms, which is what rounding is
// measured by, so they count too.

#include "ir/graph.h"

namespace graphpipe::driver {

/// The parameters all shares of whose gradients are zero but for rounding.
IdMap<ir::ParamId, bool> gradients_of_zero(const ir::Graph& graph);

}  // namespace graphpipe::driver
