#include "runtime/kernels/convolution_geometry.h"

namespace graphpipe::runtime {

wire::WindowShape window_shape(at::IntArrayRef x, at::IntArrayRef weight, const ConvolutionGeometry& geometry) {
  const bool is_plane = x.size() == 4;
  const int64_t last = is_plane ? 1 : 0;
  wire::WindowShape shape{.samples = x[0],
                          .channels = x[1],
                          .height = is_plane ? x[2] : 1,
                          .width = x.back(),
                          .kernel_height = is_plane ? weight[2] : 1,
                          .kernel_width = weight.back(),
                          .stride_down = is_plane ? geometry.strides[0] : 1,
                          .stride_right = geometry.strides[last],
                          .pad_top = is_plane ? geometry.pads[0] : 0,
                          .pad_left = geometry.pads[last],
                          .step_down = is_plane ? geometry.dilations[0] : 1,
                          .step_right = geometry.dilations[last]};
  shape.places_down = (shape.height + 2 * shape.pad_top - shape.span_down()) / shape.stride_down + 1;
  shape.places_right = (shape.width + 2 * shape.pad_left - shape.span_right()) / shape.stride_right + 1;
  return shape;
}

}  // namespace graphpipe::runtime
