#pragma once
// The weight gradient of depthwise convolutions of planes whose channels come last in memory, [N, H, W, C], as a
// transposition leaves them: vectors hold channels. (LibTorch computes the forward and the input gradient well.)

#include <cstdint>

#include "wire/window_shape.h"

namespace graphpipe::runtime {

/// Channels that such loops need at least.
inline constexpr int64_t kFewestChannelsLast = 16;

/// Elements as in depthwise_planes.h. of_weights [C, h, w] = the gradient, or plus it if `adds`. Needs:
/// kFewestChannelsLast channels, a window.
template <typename Element>
void depthwise_weights_of_last(const wire::WindowShape& shape, const Element* planes, const Element* gradients,
                               Element* of_weights, bool adds);

}  // namespace graphpipe::runtime
