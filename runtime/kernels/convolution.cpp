#include "runtime/kernels/convolution.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>

#include "runtime/kernels/bfloat_windows.h"
#include "runtime/kernels/bfloats.h"
#include "runtime/kernels/kernel_choice.h"
#include "runtime/kernels/product.h"
#include "runtime/kernels/vector_loops.h"
#include "runtime/kernels/window_products.h"
#include "runtime/kernels/winograd.h"
#include "wire/convolution.h"

namespace graphpipe::runtime {
namespace {

using wire::ConvolutionPass;
using wire::WindowShape;

bool by_products(ConvolutionPass pass, const at::Tensor& one, const at::Tensor& other, const WindowShape& shape,
                 int64_t results) {
  if (is_plain_bfloat(one) && is_plain_bfloat(other)) return wire::convolves_bfloats_by_products(pass, shape, results);
  return is_plain(one) && is_plain(other) && shape.windows() > 0 && wire::convolves_by_products(pass, shape, results);
}

// --- by products of whole planes ---

// [M, channels]
at::Tensor weight_matrix(const at::Tensor& weight) { return weight.view({weight.size(0), -1}); }
// One sample as a matrix: [channels, places].
at::Tensor matrix_of_sample(const at::Tensor& planes, int64_t sample) {
  return planes.select(0, sample).view({planes.size(1), -1});
}

void forward_planes(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& result) {
  if (bias.defined()) result.copy_(bias.view({1, -1, 1, 1}).expand_as(result));
  for (int64_t sample = 0; sample < x.size(0); ++sample)
    product_into(matrix_of_sample(result, sample), weight_matrix(weight), matrix_of_sample(x, sample), bias.defined());
}

void input_planes(const at::Tensor& gradient, const at::Tensor& weight, const at::Tensor& result) {
  for (int64_t sample = 0; sample < gradient.size(0); ++sample)
    product_into(matrix_of_sample(result, sample), weight_matrix(weight).t(), matrix_of_sample(gradient, sample),
                 /*adds=*/false);
}

void add_weight_planes(const at::Tensor& sum, const at::Tensor& gradient, const at::Tensor& x, bool adds) {
  for (int64_t sample = 0; sample < x.size(0); ++sample, adds = true)
    product_into(weight_matrix(sum), matrix_of_sample(gradient, sample), matrix_of_sample(x, sample).t(), adds);
}

// --- by products of windows ---

/// Calls `work` with the pass and its workspace.
template <typename Work>
void with_windows(const WindowShape& shape, int64_t results, const at::TensorOptions& options, const Work& work) {
  const at::Tensor workspace = at::empty({wire::window_floats(shape, results)}, options);
  work(WindowPass{shape, results, workspace.mutable_data_ptr<float>()});
}

at::Tensor forward_products(const at::Tensor& any_x, const at::Tensor& any_weight, const at::Tensor& any_bias,
                            const WindowShape& shape) {
  const at::Tensor x = any_x.contiguous(), weight = any_weight.contiguous();
  const at::Tensor bias = any_bias.defined() ? any_bias.contiguous() : any_bias;
  const bool is_whole = wire::convolves_whole_planes(shape);
  if (!is_whole && x.scalar_type() == at::kBFloat16) return bfloat_window_planes(shape, x, weight, bias);
  at::Tensor result = at::empty({shape.samples, weight.size(0), shape.places_down, shape.places_right}, x.options());
  if (is_whole) {
    forward_planes(x, weight, bias, result);
    return result;
  }
  with_windows(shape, weight.size(0), x.options(), [&](const WindowPass& pass) {
    window_planes(pass, elements_of(x), elements_of(weight), elements_of(bias), result.mutable_data_ptr<float>());
  });
  return result;
}

at::Tensor input_products(const at::Tensor& any_gradient, const at::Tensor& any_weight, const WindowShape& shape) {
  const at::Tensor gradient = any_gradient.contiguous(), weight = any_weight.contiguous();
  const bool is_whole = wire::convolves_whole_planes(shape);
  if (!is_whole && gradient.scalar_type() == at::kBFloat16)
    return bfloat_window_input_gradient(shape, gradient, weight);
  at::Tensor result = at::empty({shape.samples, shape.channels, shape.height, shape.width}, gradient.options());
  if (is_whole) {
    input_planes(gradient, weight, result);
    return result;
  }
  with_windows(shape, weight.size(0), gradient.options(), [&](const WindowPass& pass) {
    window_input_gradient(pass, elements_of(gradient), elements_of(weight), result.mutable_data_ptr<float>());
  });
  return result;
}

void add_weight_products(at::Tensor& sum, const at::Tensor& any_gradient, const at::Tensor& any_x,
                         const WindowShape& shape) {
  const at::Tensor gradient = any_gradient.contiguous(), x = any_x.contiguous();
  const bool adds = sum.defined();
  const int64_t sizes[] = {gradient.size(1), shape.channels, shape.kernel_height, shape.kernel_width};
  if (x.scalar_type() == at::kBFloat16) {
    const at::Tensor share = bfloat_window_weights(shape, gradient, x).view(sizes);
    if (adds) sum.add_(share);
    else sum = share;
    return;
  }
  if (!adds) sum = at::empty(sizes, x.options());
  if (wire::convolves_whole_planes(shape)) return add_weight_planes(sum, gradient, x, adds);
  with_windows(shape, gradient.size(1), x.options(), [&](const WindowPass& pass) {
    window_weights(pass, elements_of(x), elements_of(gradient), sum.mutable_data_ptr<float>(), adds);
  });
}

// --- by Winograd's method ---

struct WinogradChoice {
  wire::Convolution of;
  int64_t tile = 2;
};

/// The pass and its tiles, if Winograd's method is to compute it.
std::optional<WinogradChoice> by_winograd(wire::ConvolutionPass pass, const at::Tensor& one, const at::Tensor& other,
                                          const WindowShape& shape, int64_t results) {
  const std::optional<wire::Convolution> of = wire::winograd_convolution(pass, shape, results);
  if (!of || !is_plain(one) || !is_plain(other)) return std::nullopt;
  const ConvolutionKernel kernel = choose_convolution_kernel(*of);
  if (kernel == ConvolutionKernel::kDirect || !wire::fits_kernel(*of, kernel)) return std::nullopt;
  return WinogradChoice{*of, wire::winograd_tile(kernel)};
}

/// Calls `work` with the pass and its workspace.
template <typename Work>
void with_winograd(const WinogradChoice& choice, const at::TensorOptions& options, const Work& work) {
  const wire::Convolution& of = choice.of;
  WinogradPass pass{.shape = wire::winograd_shape(of, choice.tile),
                    .read_height = of.height,
                    .read_width = of.width,
                    .pad_top = of.pad_top,
                    .pad_left = of.pad_left};
  // The convolution of the gradient with weights in reverse, padded by what they reach over it.
  if (of.pass == wire::ConvolutionPass::kInputGradient)
    pass = {pass.shape, of.result_height(), of.result_width(), 2 - of.pad_top, 2 - of.pad_left};
  const at::Tensor workspace = at::empty({wire::winograd_floats(pass.shape)}, options);
  pass.workspace = workspace.mutable_data_ptr<float>();
  work(pass);
}

at::Tensor forward_winograd(const WinogradChoice& choice, const at::Tensor& any_x, const at::Tensor& weight,
                            const at::Tensor& any_bias) {
  const wire::Convolution& of = choice.of;
  const at::Tensor x = any_x.contiguous(), matrix = weight.contiguous();
  const at::Tensor bias = any_bias.defined() ? any_bias.contiguous() : any_bias;
  at::Tensor result = at::empty({of.samples, of.results, of.result_height(), of.result_width()}, x.options());
  with_winograd(choice, x.options(), [&](const WinogradPass& pass) {
    winograd_planes(pass, x.const_data_ptr<float>(), matrix.const_data_ptr<float>(), /*is_turned=*/false,
                    elements_of(bias), result.mutable_data_ptr<float>());
  });
  return result;
}

at::Tensor input_winograd(const WinogradChoice& choice, const at::Tensor& any_gradient, const at::Tensor& weight) {
  const wire::Convolution& of = choice.of;
  const at::Tensor gradient = any_gradient.contiguous(), matrix = weight.contiguous();
  at::Tensor result = at::empty({of.samples, of.channels, of.height, of.width}, gradient.options());
  with_winograd(choice, gradient.options(), [&](const WinogradPass& pass) {
    winograd_planes(pass, gradient.const_data_ptr<float>(), matrix.const_data_ptr<float>(), /*is_turned=*/true, nullptr,
                    result.mutable_data_ptr<float>());
  });
  return result;
}

void add_weight_winograd(at::Tensor& sum, const WinogradChoice& choice, const at::Tensor& any_gradient,
                         const at::Tensor& any_x) {
  const wire::Convolution& of = choice.of;
  const at::Tensor gradient = any_gradient.contiguous(), x = any_x.contiguous();
  const bool adds = sum.defined();
  if (!adds) sum = at::empty({of.results, of.channels, 3, 3}, x.options());
  with_winograd(choice, x.options(), [&](const WinogradPass& pass) {
    winograd_weights(pass, x.const_data_ptr<float>(), gradient.const_data_ptr<float>(), sum.mutable_data_ptr<float>(),
                     adds);
  });
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> backward(const at::Tensor& gradient, const at::Tensor& x,
                                                        const at::Tensor& weight, const ConvolutionGeometry& geometry,
                                                        std::array<bool, 3> mask) {
  constexpr int64_t kNoPadding[] = {0, 0};
  return at::convolution_backward(gradient, x, weight, std::nullopt, geometry.strides, geometry.pads,
                                  geometry.dilations, /*transposed=*/false, kNoPadding, /*groups=*/1, mask);
}

// --- by products of the windows or by LibTorch ---

at::Tensor forward_direct(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                          const WindowShape& shape, const ConvolutionGeometry& geometry) {
  if (by_products(ConvolutionPass::kForward, x, weight, shape, weight.size(0)))
    return forward_products(x, weight, bias, shape);
  constexpr int64_t kNoPadding[] = {0, 0};
  return at::convolution(x, weight, bias, geometry.strides, geometry.pads, geometry.dilations, /*transposed=*/false,
                         kNoPadding, /*groups=*/1);
}

at::Tensor input_direct(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& weight,
                        const WindowShape& shape, const ConvolutionGeometry& geometry) {
  if (by_products(ConvolutionPass::kInputGradient, gradient, weight, shape, weight.size(0)))
    return input_products(gradient, weight, shape);
  return std::get<0>(backward(gradient, x, weight, geometry, {true, false, false}));
}

void add_weight_direct(at::Tensor& sum, const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& weight,
                       const WindowShape& shape, const ConvolutionGeometry& geometry) {
  if (by_products(ConvolutionPass::kWeightGradient, gradient, x, shape, weight.size(0)))
    return add_weight_products(sum, gradient, x, shape);
  const at::Tensor share = std::get<1>(backward(gradient, x, weight, geometry, {false, true, false}));
  if (sum.defined()) sum.add_(share);
  else sum = share.contiguous();
}

}  // namespace

at::Tensor convolution(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                       const ConvolutionGeometry& geometry) {
  const WindowShape shape = window_shape(x.sizes(), weight.sizes(), geometry);
  if (const auto choice = by_winograd(ConvolutionPass::kForward, x, weight, shape, weight.size(0)))
    return forward_winograd(*choice, x, weight, bias);
  return forward_direct(x, weight, bias, shape, geometry);
}

at::Tensor convolution_input_gradient(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& weight,
                                      const ConvolutionGeometry& geometry) {
  const WindowShape shape = window_shape(x.sizes(), weight.sizes(), geometry);
  if (const auto choice = by_winograd(ConvolutionPass::kInputGradient, gradient, weight, shape, weight.size(0)))
    return input_winograd(*choice, gradient, weight);
  return input_direct(gradient, x, weight, shape, geometry);
}

void add_convolution_weight_gradient(at::Tensor& sum, const at::Tensor& gradient, const at::Tensor& x,
                                     const at::Tensor& weight, const ConvolutionGeometry& geometry) {
  const WindowShape shape = window_shape(x.sizes(), weight.sizes(), geometry);
  if (const auto choice = by_winograd(ConvolutionPass::kWeightGradient, gradient, x, shape, weight.size(0)))
    return add_weight_winograd(sum, *choice, gradient, x);
  add_weight_direct(sum, gradient, x, weight, shape, geometry);
}

at::Tensor convolution_weight_gradient(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& weight,
                                       const ConvolutionGeometry& geometry) {
  at::Tensor share;
  add_convolution_weight_gradient(share, gradient, x, weight, geometry);
  return share;
}

MeasuredConvolution::MeasuredConvolution(const wire::Convolution& of) : of_(of) {
  // Of what a pass makes, only the shape is read; but programs have x for its gradient too (ops/conv.cpp).
  const auto operand = [&](ConvolutionPass made_by, at::IntArrayRef sizes) {
    return made_by == of.pass ? at::ones({1}).expand(sizes) : at::ones(sizes);
  };
  x_ = at::ones({of.samples, of.channels, of.height, of.width});
  weight_ = operand(ConvolutionPass::kWeightGradient, {of.results, of.channels, 3, 3});
  gradient_ = operand(ConvolutionPass::kForward, {of.samples, of.results, of.result_height(), of.result_width()});
}

void MeasuredConvolution::run(ConvolutionKernel kernel) const {
  const int64_t ones[] = {1, 1}, pads[] = {of_.pad_top, of_.pad_left};
  const ConvolutionGeometry geometry{ones, pads, ones};
  const WindowShape shape = window_shape(x_.sizes(), weight_.sizes(), geometry);
  const bool is_direct = kernel == ConvolutionKernel::kDirect;
  const WinogradChoice choice{of_, wire::winograd_tile(kernel)};
  at::Tensor sum;
  switch (of_.pass) {
    case ConvolutionPass::kForward:
      is_direct ? forward_direct(x_, weight_, {}, shape, geometry) : forward_winograd(choice, x_, weight_, {});
      return;
    case ConvolutionPass::kInputGradient:
      is_direct ? input_direct(gradient_, x_, weight_, shape, geometry) : input_winograd(choice, gradient_, weight_);
      return;
    case ConvolutionPass::kWeightGradient:
      if (is_direct) return add_weight_direct(sum, gradient_, x_, weight_, shape, geometry);
      return add_weight_winograd(sum, choice, gradient_, x_);
  }
}

}  // namespace graphpipe::runtime
