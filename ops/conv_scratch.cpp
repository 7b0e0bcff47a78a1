#include "ops/conv_scratch.h"

#include <algorithm>
#include <optional>

#include "ops/conv_form.h"
#include "ops/infer_helpers.h"
#include "wire/depthwise.h"

namespace graphpipe::ops {
namespace {

constexpr int64_t kBlock = 16, kBfloatBytes = 2;

bool all_are(const std::vector<int64_t>& numbers, int64_t number) {
  return std::ranges::all_of(numbers, [&](int64_t each) { return each == number; });
}

/// Bytes of a copy of activations, or of weights [M, C, ..], with channels in blocks.
double blocked_bytes(const ir::Value& value, Samples samples, bool is_weight) {
  const auto padding = [&](size_t axis) {
    const int64_t channels = value.type.shape[axis].factor;
    return static_cast<double>((channels + kBlock - 1) / kBlock * kBlock) / static_cast<double>(channels);
  };
  return bytes_of(value, samples) * padding(1) * (is_weight ? padding(0) : 1);
}

/// The channels of the wider activations at the places of the smaller ones, for one sample.
double gathered_bytes(const ConvOperands& operands) {
  constexpr double kAlignment = 128;
  const ir::Shape &one = operands.x.type.shape, &other = operands.y.type.shape;
  auto elements = static_cast<double>(std::max(one[1].factor, other[1].factor));
  for (size_t i = 2; i < one.size(); ++i) elements *= static_cast<double>(std::min(one[i].factor, other[i].factor));
  return elements * static_cast<double>(ir::bytes_per_element(operands.made.type.dtype)) + kAlignment;
}

// oneDNN works on copies with channels in blocks, as measured with LibTorch 2.11 on x86-64 (in blocks of 8 channels
// without AVX-512): all three copies exist before the result is made from its copy. Activations of up to three channels
// are read in place, pointwise kernels on whole blocks take everything in place, strided ones gather what they read of
// one sample, and a strided input gradient has a separate sum and copies its result once more.
double blocked_scratch(const NodeView& node, const ConvOperands& operands, Samples samples) {
  constexpr double kStridedSum = 36'888, kWidePointwiseSum = 135'192;
  constexpr int64_t kWide = 14;
  constexpr int64_t kFewChannels = 3;
  const ir::Shape& weight = operands.weight.type.shape;
  const std::vector<int64_t> kernel = fixed_sizes(weight.begin() + 2, weight.end());
  const std::vector<int64_t> strides = node.attributes().get_ints("strides", std::vector<int64_t>(kernel.size(), 1));
  bool whole_blocks = true;
  double copies = blocked_bytes(operands.weight, samples, true);
  for (const ir::Value* value : {&operands.x, &operands.y}) {
    const int64_t channels = value->type.shape[1].factor;
    whole_blocks &= channels % kBlock == 0;
    if (value == &operands.made || channels > kFewChannels) copies += blocked_bytes(*value, samples, false);
  }
  if (whole_blocks && all_are(kernel, 1) && all_are(strides, 1)) return 0;
  const double result = bytes_of(operands.made, samples);
  if (&operands.made == &operands.x && !all_are(strides, 1)) {
    const bool is_wide = operands.made.type.shape.back().factor >= kWide;
    const double sum = all_are(kernel, 1) && is_wide ? kWidePointwiseSum : kStridedSum;
    return std::max(copies + sum - result, 2 * result);
  }
  if (all_are(kernel, 1) && !all_are(strides, 1)) copies += gathered_bytes(operands);
  return std::max(copies - result, blocked_bytes(operands.made, samples, &operands.made == &operands.weight));
}

wire::ConvolutionPass pass_of(const ConvOperands& operands) {
  if (&operands.made == &operands.x) return wire::ConvolutionPass::kInputGradient;
  return &operands.made == &operands.weight ? wire::ConvolutionPass::kWeightGradient : wire::ConvolutionPass::kForward;
}

/// The places of the kernel as the runtime has them. A padding of its own comes before a kernel with unequal pads.
/// Needs: planes or lines.
wire::WindowShape window_shape(const ConvForm& form, const ConvOperands& operands, Samples samples) {
  const ir::Shape &x = operands.x.type.shape, &y = operands.y.type.shape;
  const Window& window = form.window;
  const bool is_symmetric = window.is_symmetric();
  const auto size = [&](size_t axis) {
    return x[axis + 2].factor + (is_symmetric ? 0 : window.begin[axis] + window.end[axis]);
  };
  const auto pad = [&](size_t axis) { return is_symmetric ? window.begin[axis] : 0; };
  const size_t right = x.size() - 3;
  wire::WindowShape shape{.samples = x[0].at(samples),
                          .channels = x[1].factor,
                          .height = 1,
                          .width = size(right),
                          .kernel_width = window.kernel[right],
                          .stride_right = window.strides[right],
                          .pad_left = pad(right),
                          .step_right = window.dilations[right],
                          .places_down = 1,
                          .places_right = y[right + 2].factor};
  if (right == 0) return shape;
  shape.height = size(0), shape.kernel_height = window.kernel[0], shape.stride_down = window.strides[0];
  shape.pad_top = pad(0), shape.step_down = window.dilations[0], shape.places_down = y[2].factor;
  return shape;
}

/// Of planes in one group and this type, for which the runtime chooses the algorithm.
std::optional<wire::WindowShape> plane_shape(const NodeView& node, const ConvOperands& operands, Samples samples,
                                             ir::DType type = ir::DType::kFloat32) {
  const Result<ConvForm> form = conv_form(node, operands.x.type.shape, operands.weight.type.shape);
  if (!form.ok() || !is_plane(node, *form) || operands.y.type.dtype != type) return std::nullopt;
  return window_shape(*form, operands, samples);
}

/// Whether the runtime computes it channel by channel, in what its threads keep.
bool goes_by_channels(const NodeView& node, const ConvOperands& operands, Samples samples) {
  const ir::Shape &x = operands.x.type.shape, &weight = operands.weight.type.shape;
  const Result<ConvForm> form = conv_form(node, x, weight);
  const bool is_bfloat = operands.y.type.dtype == ir::DType::kBFloat16;
  if (!form.ok() || !is_depthwise(node, *form, x, weight)) return false;
  if (!is_bfloat && operands.y.type.dtype != ir::DType::kFloat32) return false;
  return wire::convolves_depthwise(pass_of(operands), window_shape(*form, operands, samples), is_bfloat);
}

/// If the runtime multiplies operands of bfloat16 (runtime/kernels/bfloat_windows.cpp): the columns of all windows, the
/// results' planes by channels, and what windows share in float32. Unset if it does not.
std::optional<double> bfloat_product_scratch(const NodeView& node, const ConvOperands& operands, Samples samples) {
  const std::optional<wire::WindowShape> shape = plane_shape(node, operands, samples, ir::DType::kBFloat16);
  const int64_t results = operands.weight.type.shape[0].factor;
  const wire::ConvolutionPass pass = pass_of(operands);
  if (!shape || !wire::convolves_bfloats_by_products(pass, *shape, results)) return std::nullopt;
  if (pass != wire::ConvolutionPass::kWeightGradient && wire::convolves_whole_planes(*shape)) return 0;
  const bool is_whole = shape->reads_whole_planes(), has_copies = shape->samples > 1;
  const double columns = static_cast<double>(shape->windows()) * static_cast<double>(shape->rows()) * kBfloatBytes;
  const double by_channels = has_copies ? bytes_of(operands.y, samples) : 0;
  const bool sums = pass == wire::ConvolutionPass::kInputGradient && !is_whole;
  // With the pads of a kernel that has unequal ones, which the runtime adds before.
  const double padded = static_cast<double>(shape->height) * static_cast<double>(shape->width) *
                        static_cast<double>(shape->samples) * static_cast<double>(shape->channels);
  return (is_whole && !has_copies ? 0 : columns) + by_channels + (sums ? padded * sizeof(float) : 0);
}

/// If the runtime multiplies (runtime/kernels/convolution.cpp): its workspace. Unset if it does not.
std::optional<double> product_scratch(const NodeView& node, const ConvOperands& operands, Samples samples) {
  const std::optional<wire::WindowShape> shape = plane_shape(node, operands, samples);
  const int64_t results = operands.weight.type.shape[0].factor;
  if (!shape || shape->windows() == 0 || !wire::convolves_by_products(pass_of(operands), *shape, results))
    return std::nullopt;
  if (wire::convolves_whole_planes(*shape)) return 0;
  return static_cast<double>(wire::window_floats(*shape, results)) * sizeof(float);
}

/// If oneDNN multiplies the columns of one sample instead (kernels wider than 13, or than what they slide over): the
/// columns, and four sums in the shape of the weight. Zero otherwise.
double column_scratch(const ir::Shape& slid_over, const ir::Shape& places, const ir::Value& weight, Samples samples) {
  constexpr int64_t kWidest = 13;
  bool multiplies_columns = false;
  double columns = static_cast<double>(slid_over[1].factor * ir::bytes_per_element(weight.type.dtype));
  for (size_t i = 2; i < weight.type.shape.size(); ++i) {
    const int64_t width = weight.type.shape[i].factor;
    multiplies_columns |= width > kWidest || width > slid_over[i].factor;
    columns *= static_cast<double>(width * places[i].factor);
  }
  return multiplies_columns ? 4 * bytes_of(weight, samples) + columns : 0;
}

/// Unless Winograd's method computes it.
double direct_scratch(const NodeView& node, const ConvOperands& operands, Samples samples) {
  if (const std::optional<double> products = product_scratch(node, operands, samples)) return *products;
  if (const std::optional<double> products = bfloat_product_scratch(node, operands, samples)) return *products;
  if (goes_by_channels(node, operands, samples)) return 0;
  if (&operands.made == &operands.weight) {
    const ir::Value &many = is_transposed(node) ? operands.x : operands.y,
                    &few = is_transposed(node) ? operands.y : operands.x;
    const double columns = column_scratch(few.type.shape, many.type.shape, operands.weight, samples);
    if (columns > 0) return columns;
  }
  return blocked_scratch(node, operands, samples);
}

}  // namespace

bool is_depthwise(const NodeView& node, const ConvOperands& operands) {
  const ir::Shape &x = operands.x.type.shape, &weight = operands.weight.type.shape;
  const Result<ConvForm> form = conv_form(node, x, weight);
  return form.ok() && is_depthwise(node, *form, x, weight);
}

std::optional<wire::Convolution> winograd_pass(const NodeView& node, const ConvOperands& operands, Samples samples) {
  const std::optional<wire::WindowShape> shape = plane_shape(node, operands, samples);
  if (!shape) return std::nullopt;
  return wire::winograd_convolution(pass_of(operands), *shape, operands.weight.type.shape[0].factor);
}

bool adds_in_place(const NodeView& node, const ConvOperands& operands, Samples samples) {
  return product_scratch(node, operands, samples).has_value() || goes_by_channels(node, operands, samples);
}

double conv_scratch(const NodeView& node, const ConvOperands& operands, Samples samples) {
  double largest = direct_scratch(node, operands, samples);
  const std::optional<wire::Convolution> winograd = winograd_pass(node, operands, samples);
  if (!winograd) return largest;
  for (const int64_t tile : {2, 4}) {
    if (!wire::fits_winograd(*winograd, tile)) continue;
    const int64_t floats = wire::winograd_floats(wire::winograd_shape(*winograd, tile));
    largest = std::max(largest, static_cast<double>(floats) * sizeof(float));
  }
  return largest;
}

}  // namespace graphpipe::ops
