#include "runtime/kernels/depthwise_convolution.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>

#include "runtime/add_share.h"
#include "runtime/kernels/depthwise_last.h"
#include "runtime/kernels/depthwise_planes.h"
#include "wire/depthwise.h"

namespace graphpipe::runtime {
namespace {

using wire::ConvolutionPass;

/// Numbers as the loops read and write them.
template <typename Element>
const Element* data_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<const Element*>(tensor.const_data_ptr()) : nullptr;
}
template <typename Element>
Element* mutable_data_of(const at::Tensor& tensor) {
  return static_cast<Element*>(tensor.mutable_data_ptr());
}

/// Whether channels come last in memory, as a transposition leaves them and LibTorch's kernels pass it on.
bool has_channels_last(const at::Tensor& planes) {
  return planes.dim() == 4 && !planes.is_contiguous() && planes.is_contiguous(at::MemoryFormat::ChannelsLast);
}
/// A bfloat16 or float of the CPU, for which no gradient is recorded; where it lies does not matter.
bool is_number_of_loops(const at::Tensor& tensor) {
  return tensor.is_cpu() && (tensor.scalar_type() == at::kBFloat16 || tensor.scalar_type() == at::kFloat) &&
         !(at::GradMode::is_enabled() && tensor.requires_grad());
}

/// Whether the loops take the pass with these operands, of the second of which only its type matters.
bool goes_by_loops(ConvolutionPass pass, const wire::WindowShape& shape, const at::Tensor& planes,
                   const at::Tensor& other) {
  const bool are_numbers = is_number_of_loops(planes) && is_number_of_loops(other);
  return are_numbers && planes.scalar_type() == other.scalar_type() &&
         wire::convolves_depthwise(pass, shape, planes.scalar_type() == at::kBFloat16);
}

/// Calls `work` with a number of the type that the loops read and write.
template <typename Work>
void with_element(at::ScalarType type, const Work& work) {
  if (type == at::kBFloat16) work(uint16_t{});
  else work(float{});
}

constexpr int64_t kNone[] = {0, 0};

std::tuple<at::Tensor, at::Tensor, at::Tensor> depthwise_backward(const at::Tensor& gradient, const at::Tensor& x,
                                                                  const at::Tensor& weight,
                                                                  const ConvolutionGeometry& geometry,
                                                                  std::array<bool, 3> mask) {
  return at::convolution_backward(gradient, x, weight, std::nullopt, geometry.strides, geometry.pads,
                                  geometry.dilations, /*transposed=*/false,
                                  at::IntArrayRef(kNone, geometry.strides.size()), /*groups=*/x.size(1), mask);
}

}  // namespace

at::Tensor depthwise_convolution(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                 const ConvolutionGeometry& geometry) {
  const wire::WindowShape shape = window_shape(x.sizes(), weight.sizes(), geometry);
  if (has_channels_last(x) || !goes_by_loops(ConvolutionPass::kForward, shape, x, weight))
    return at::convolution(x, weight, bias, geometry.strides, geometry.pads, geometry.dilations, /*transposed=*/false,
                           at::IntArrayRef(kNone, geometry.strides.size()), /*groups=*/shape.channels);
  const at::Tensor planes = x.contiguous(), matrix = weight.contiguous();
  const at::Tensor numbers = bias.defined() ? bias.contiguous() : bias;
  const int64_t sizes[] = {shape.samples, shape.channels, shape.places_down, shape.places_right};
  at::Tensor result = at::empty(sizes, x.options());
  with_element(x.scalar_type(), [&]<typename Element>(Element) {
    depthwise_planes(shape, data_of<Element>(planes), data_of<Element>(matrix), data_of<Element>(numbers),
                     mutable_data_of<Element>(result));
  });
  return x.dim() == 4 ? result : result.squeeze(2);
}

at::Tensor depthwise_convolution_input_gradient(const at::Tensor& gradient, const at::Tensor& x,
                                                const at::Tensor& weight, const ConvolutionGeometry& geometry) {
  const wire::WindowShape shape = window_shape(x.sizes(), weight.sizes(), geometry);
  if (has_channels_last(gradient) || !goes_by_loops(ConvolutionPass::kInputGradient, shape, gradient, weight))
    return std::get<0>(depthwise_backward(gradient, x, weight, geometry, {true, false, false}));
  const at::Tensor places = gradient.contiguous(), matrix = weight.contiguous();
  at::Tensor result = at::empty(x.sizes(), gradient.options());
  with_element(gradient.scalar_type(), [&]<typename Element>(Element) {
    depthwise_input_gradient(shape, data_of<Element>(places), data_of<Element>(matrix),
                             mutable_data_of<Element>(result));
  });
  return result;
}

void add_depthwise_convolution_weight_gradient(at::Tensor& sum, const at::Tensor& gradient, const at::Tensor& x,
                                               const at::Tensor& weight, const ConvolutionGeometry& geometry) {
  const wire::WindowShape shape = window_shape(x.sizes(), weight.sizes(), geometry);
  if (!goes_by_loops(ConvolutionPass::kWeightGradient, shape, x, gradient))
    return add_share(sum, std::get<1>(depthwise_backward(gradient, x, weight, geometry, {false, true, false})));
  const bool adds = sum.defined();
  if (!adds) sum = at::empty(weight.sizes(), x.options());
  const bool are_last = has_channels_last(x) && has_channels_last(gradient) && shape.channels >= kFewestChannelsLast;
  with_element(x.scalar_type(), [&]<typename Element>(Element) {
    if (are_last)
      return depthwise_weights_of_last(shape, data_of<Element>(x), data_of<Element>(gradient),
                                       mutable_data_of<Element>(sum), adds);
    const at::Tensor planes = x.contiguous(), places = gradient.contiguous();
    depthwise_weights(shape, data_of<Element>(planes), data_of<Element>(places), mutable_data_of<Element>(sum), adds);
  });
}

at::Tensor depthwise_convolution_weight_gradient(const at::Tensor& gradient, const at::Tensor& x,
                                                 const at::Tensor& weight, const ConvolutionGeometry& geometry) {
  at::Tensor result;
  add_depthwise_convolution_weight_gradient(result, gradient, x, weight, geometry);
  return result;
}

}  // namespace graphpipe::runtime
