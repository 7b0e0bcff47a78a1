// Convolutions over one to three spatial axes. x is [N, C, ...]; the weight of Conv is [M, C/group, ...], that of
// ConvTranspose [C, M/group, ...]. Pads that differ at the two ends become a padding (Conv) or a cut (ConvTranspose)
// of its own, because the kernels know only equal pads.
//
// Gradient nodes: <Op>GradInput(gradient, weight, x or absent) {shape of x} and <Op>GradWeight(gradient, x, weight).
// The input gradient needs nothing of x but its shape. It names x only where the weight gradient keeps x anyway: the
// CPU kernel then has no stand-in to fill.

#include <algorithm>
#include <array>

#include "ops/emit_helpers.h"
#include "ops/example_helpers.h"
#include "ops/families.h"
#include "ops/gradient_helpers.h"
#include "ops/infer_helpers.h"
#include "ops/joined_rows.h"
#include "ops/spatial.h"

namespace graphpipe::ops {
namespace {

bool is_transposed(const NodeView& node) { return node.node().op.starts_with("ConvTranspose"); }

std::vector<int64_t> fixed_sizes(ir::Shape::const_iterator begin, ir::Shape::const_iterator end) {
  std::vector<int64_t> sizes;
  std::transform(begin, end, std::back_inserter(sizes), [](ir::Dim dim) { return dim.factor; });
  return sizes;
}

/// Everything about a node that its checks and its call need.
struct ConvForm {
  Window window;
  int64_t groups = 1;
  std::vector<int64_t> output_padding;
  std::vector<int64_t> sizes;  // spatial, of x
};

Result<ConvForm> conv_form(const NodeView& node, const ir::Shape& x, const ir::Shape& weight) {
  ConvForm form;
  GP_TRY(form.sizes, spatial_sizes(node, x));
  const auto has_size = [](ir::Dim dim) { return dim.is_fixed() && dim.factor > 0; };
  if (weight.size() != x.size() || !has_size(x[1]) || !std::ranges::all_of(weight, has_size)) {
    return bad_model(node, text("cannot convolve ", shape_text(x), " with ", shape_text(weight)));
  }
  GP_TRY(form.window, window_of(node, fixed_sizes(weight.begin() + 2, weight.end())));
  const std::vector<int64_t> kernel = node.attributes().get_ints("kernel_shape", form.window.kernel);
  if (kernel != form.window.kernel) return bad_model(node, "has a kernel_shape other than that of its weight");
  form.groups = node.attributes().get_int("group", 1);
  form.output_padding = node.attributes().get_ints("output_padding");
  if (form.output_padding.empty()) form.output_padding.assign(form.sizes.size(), 0);
  if (form.groups < 1 || form.output_padding.size() != form.sizes.size()) {
    return bad_model(node, text("has ", form.groups, " groups or output_padding of another rank"));
  }
  return form;
}

// Number of output channels, after a check that channels, weight and groups fit.
Result<int64_t> output_channels(const NodeView& node, const ir::Shape& x, const ir::Shape& weight, int64_t groups) {
  const int64_t channels = x[1].factor, first = weight[0].factor, second = weight[1].factor;
  int64_t result = 0;
  bool fits = false;
  if (is_transposed(node)) {
    fits = first == channels && channels % groups == 0 && !__builtin_mul_overflow(second, groups, &result);
  } else {
    result = first;
    fits = channels % groups == 0 && second == channels / groups && first % groups == 0;
  }
  if (fits) return result;
  return bad_model(node,
                   text("cannot convolve ", shape_text(x), " with ", shape_text(weight), " in ", groups, " groups"));
}

// The spatial sizes of the output.
Result<std::vector<int64_t>> output_sizes(const NodeView& node, const ConvForm& form) {
  std::vector<int64_t> result;
  const Window& window = form.window;
  for (size_t axis = 0; axis < form.sizes.size(); ++axis) {
    int64_t size = 0;
    if (is_transposed(node)) {
      const int64_t extra = form.output_padding[axis];
      if (extra < 0 || extra >= std::max(window.strides[axis], window.dilations[axis])) {
        return bad_model(node, text("has output_padding ", extra, ", which a stride or dilation must exceed"));
      }
      if (__builtin_mul_overflow(window.strides[axis], form.sizes[axis] - 1, &size)) size = -1;
      else size += extra + window.span(axis) - window.begin[axis] - window.end[axis];
    } else {
      size = position_count(window, axis, form.sizes[axis], false);
    }
    if (size < 1) return bad_model(node, text("has an input smaller than its window on axis ", axis + 2));
    result.push_back(size);
  }
  return result;
}

Inferred infer_conv(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 2, 3));
  GP_TRY_VOID(expect_floating(node, {0}));
  GP_TRY_VOID(expect_same_dtype(node, {0, 1, 2}));
  const ir::Shape &x = node.input(0).type.shape, &weight = node.input(1).type.shape;
  GP_TRY(const ConvForm form, conv_form(node, x, weight));
  GP_TRY(const int64_t channels, output_channels(node, x, weight, form.groups));
  if (node.has_input(2) && node.input(2).type.shape != ir::Shape{ir::Dim::fixed(channels)}) {
    return bad_model(node, text("has a bias of shape ", shape_text(node.input(2).type.shape)));
  }
  GP_TRY(const std::vector<int64_t> sizes, output_sizes(node, form));
  ir::Shape shape = {x[0], ir::Dim::fixed(channels)};
  for (int64_t size : sizes) shape.push_back(ir::Dim::fixed(size));
  return one_output(node, {node.input(0).type.dtype, std::move(shape)});
}

// Multiply-adds: every element of `many` meets the weights of one of its group's channels.
double multiply_adds(const ir::Value& many, const ir::Value& weight, Samples samples) {
  return elements(many, samples) * elements(weight, samples) / static_cast<double>(weight.type.shape[0].factor);
}

constexpr int64_t kBlock = 16;

/// Of a copy of activations, or of weights [M, C, ..], with channels in blocks.
double blocked_bytes(const ir::Value& value, Samples samples, bool is_weight) {
  const auto padding = [&](size_t axis) {
    const int64_t channels = value.type.shape[axis].factor;
    return static_cast<double>((channels + kBlock - 1) / kBlock * kBlock) / static_cast<double>(channels);
  };
  return bytes_of(value, samples) * padding(1) * (is_weight ? padding(0) : 1);
}

struct ConvOperands {
  const ir::Value &activations, &other_activations, &weight;
  /// One of the three.
  const ir::Value& made;
};

/// The channels of the wider activations at the places of the smaller, of one sample.
double gathered_bytes(const ConvOperands& operands) {
  constexpr double kAlignment = 128;
  const ir::Shape &one = operands.activations.type.shape, &other = operands.other_activations.type.shape;
  auto elements = static_cast<double>(std::max(one[1].factor, other[1].factor));
  for (size_t i = 2; i < one.size(); ++i) elements *= static_cast<double>(std::min(one[i].factor, other[i].factor));
  return elements * static_cast<double>(ir::bytes_per_element(operands.made.type.dtype)) + kAlignment;
}

// oneDNN works on copies with channels in blocks, as measured with LibTorch 2.11 on x86-64 (there of 8 channels without
// AVX-512): all three lie there before the result is made of its copy. Activations of up to three channels are read as
// they are, pointwise kernels on whole blocks take all as it is, strided ones gather what they read of one sample, and
// a strided input gradient has a sum of its own and copies its result once more.
double blocked_scratch(const NodeView& node, const ConvOperands& operands, bool is_input_gradient, Samples samples) {
  constexpr double kStridedSum = 36'888, kWidePointwiseSum = 135'192;
  constexpr int64_t kWide = 14;
  constexpr int64_t kFewChannels = 3;
  const ir::Shape& weight = operands.weight.type.shape;
  const std::vector<int64_t> kernel = fixed_sizes(weight.begin() + 2, weight.end());
  const std::vector<int64_t> strides = node.attributes().get_ints("strides", std::vector<int64_t>(kernel.size(), 1));
  const auto all_one = [](const std::vector<int64_t>& sizes) {
    return std::ranges::all_of(sizes, [](int64_t size) { return size == 1; });
  };
  bool whole_blocks = true;
  double copies = blocked_bytes(operands.weight, samples, true);
  for (const ir::Value* value : {&operands.activations, &operands.other_activations}) {
    const int64_t channels = value->type.shape[1].factor;
    whole_blocks &= channels % kBlock == 0;
    if (value == &operands.made || channels > kFewChannels) copies += blocked_bytes(*value, samples, false);
  }
  if (whole_blocks && all_one(kernel) && all_one(strides)) return 0;
  const double result = bytes_of(operands.made, samples);
  if (is_input_gradient && !all_one(strides)) {
    const bool is_wide = operands.made.type.shape.back().factor >= kWide;
    const double sum = all_one(kernel) && is_wide ? kWidePointwiseSum : kStridedSum;
    return std::max(copies + sum - result, 2 * result);
  }
  if (all_one(kernel) && !all_one(strides)) copies += gathered_bytes(operands);
  return std::max(copies - result, blocked_bytes(operands.made, samples, &operands.made == &operands.weight));
}

// Conv: each output element sums C/group * kernel products. ConvTranspose: each input element is spread over
// M/group * kernel.
Work conv_work(const NodeView& node, Samples samples) {
  const ir::Value& many = is_transposed(node) ? node.input(0) : node.output(0);
  const ConvOperands operands{node.input(0), node.output(0), node.input(1), node.output(0)};
  return {.flops = 2 * multiply_adds(many, node.input(1), samples),
          .bytes = bytes_touched(node, samples),
          .scratch = blocked_scratch(node, operands, false, samples),
          .kernel = Kernel::kConvolution};
}
Work conv_grad_input_work(const NodeView& node, Samples samples) {
  const ir::Value& many = is_transposed(node) ? node.output(0) : node.input(0);
  const ConvOperands operands{node.input(0), node.output(0), node.input(1), node.output(0)};
  return {.flops = 2 * multiply_adds(many, node.input(1), samples),
          .bytes = bytes_touched(node, samples),
          .scratch = blocked_scratch(node, operands, true, samples),
          .kernel = Kernel::kConvolution};
}

/// Where oneDNN multiplies the columns of one sample instead (kernels wider than 13, or than what they slide over): the
/// columns, and four sums in the shape of the weight. Zero elsewhere.
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

Work conv_grad_weight_work(const NodeView& node, Samples samples) {
  const ir::Value &many = is_transposed(node) ? node.input(1) : node.input(0),
                  &few = is_transposed(node) ? node.input(0) : node.input(1);
  const ConvOperands operands{node.input(0), node.input(1), node.output(0), node.output(0)};
  const double columns = column_scratch(few.type.shape, many.type.shape, node.output(0), samples);
  return {.flops = 2 * multiply_adds(many, node.input(2), samples),
          .bytes = bytes_touched(node, samples),
          .scratch = columns > 0 ? columns : blocked_scratch(node, operands, false, samples),
          .kernel = Kernel::kConvolution};
}

// --- calls ---

// Pads as the kernel takes them, and what is left for a padding or cut of its own.
struct Pads {
  std::vector<int64_t> kernel, begin, end;
  bool has_rest = false;
};

Pads split_pads(const Window& window, bool transposed) {
  const size_t rank = window.rank();
  Pads pads{.kernel = window.begin, .begin = std::vector<int64_t>(rank, 0), .end = std::vector<int64_t>(rank, 0)};
  if (window.is_symmetric()) return pads;
  pads.has_rest = true;
  for (size_t axis = 0; axis < rank; ++axis) {
    // A transposed convolution can leave out only what both ends have in common; a plain one pads in full before.
    pads.kernel[axis] = transposed ? std::min(window.begin[axis], window.end[axis]) : 0;
    pads.begin[axis] = window.begin[axis] - pads.kernel[axis];
    pads.end[axis] = window.end[axis] - pads.kernel[axis];
  }
  return pads;
}

// ", {strides}, {pads}, {dilations}, transposed, {output padding}, groups"
std::string geometry(const ConvForm& form, const Pads& pads, bool transposed) {
  return text(", ", list(form.window.strides), ", ", list(pads.kernel), ", ", list(form.window.dilations), ", ",
              boolean(transposed), ", ", list(form.output_padding), ", ", form.groups);
}

void emit_conv(Emitter& emitter) {
  const NodeView& node = emitter.node();
  const ConvForm form = conv_form(node, node.input(0).type.shape, node.input(1).type.shape).value();
  const bool transposed = is_transposed(node);
  const Pads pads = split_pads(form.window, transposed);
  const bool pads_before = pads.has_rest && !transposed;
  const std::string x = pads_before ? padded(emitter, emitter.in(0), pads.begin, pads.end) : emitter.in(0);
  std::string call =
      text("at::convolution(", x, ", ", emitter.in(1), ", ", emitter.in(2), geometry(form, pads, transposed), ")");
  if (pads.has_rest && transposed) call = padded(emitter, call, negated(pads.begin), negated(pads.end));
  emitter.assign(0, call, "ATen/ops/convolution.h");
}

std::string backward_call(const std::string& gradient, const std::string& x, const std::string& weight,
                          const std::string& tail, std::string_view mask) {
  return text("at::convolution_backward(", gradient, ", ", x, ", ", weight, ", std::nullopt", tail, ", {", mask, "})");
}

// Shapes with the rest of the pads added to the spatial axes.
ir::Shape grown(ir::Shape shape, const Pads& pads) {
  for (size_t axis = 0; axis < pads.begin.size(); ++axis) shape[axis + 2].factor += pads.begin[axis] + pads.end[axis];
  return shape;
}

// The output gradient as the kernel's own output had it: a cut is undone by zeros.
std::string kernel_gradient(Emitter& emitter, const Pads& pads) {
  const bool was_cut = pads.has_rest && is_transposed(emitter.node());
  return was_cut ? padded(emitter, emitter.in(0), pads.begin, pads.end) : emitter.in(0);
}

void emit_conv_grad_input(Emitter& emitter) {
  const NodeView& node = emitter.node();
  const ir::Shape shape = node.attributes().get_shape("shape");
  const ConvForm form = conv_form(node, shape, node.input(1).type.shape).value();
  const bool transposed = is_transposed(node);
  const Pads pads = split_pads(form.window, transposed);
  const bool was_padded = pads.has_rest && !transposed;
  const bool has_x = node.has_input(2) && !was_padded;
  const std::string x =
      has_x ? emitter.in(2) : shape_only(emitter.in(0), emitter.dims(was_padded ? grown(shape, pads) : shape));
  std::string result = text("std::get<0>(",
                            backward_call(kernel_gradient(emitter, pads), x, emitter.in(1),
                                          geometry(form, pads, transposed), "true, false, false"),
                            ")");
  if (was_padded) result = padded(emitter, result, negated(pads.begin), negated(pads.end));
  emitter.assign(0, result, "ATen/ops/convolution_backward.h");
}

void emit_conv_grad_weight(Emitter& emitter) {
  const NodeView& node = emitter.node();
  const ConvForm form = conv_form(node, node.input(1).type.shape, node.input(2).type.shape).value();
  const bool transposed = is_transposed(node);
  const Pads pads = split_pads(form.window, transposed);
  const bool was_padded = pads.has_rest && !transposed;
  const std::string x = was_padded ? padded(emitter, emitter.in(1), pads.begin, pads.end) : emitter.in(1);
  emitter.assign(0,
                 text("std::get<1>(",
                      backward_call(kernel_gradient(emitter, pads), x, emitter.in(2), geometry(form, pads, transposed),
                                    "false, true, false"),
                      ")"),
                 "ATen/ops/convolution_backward.h");
}

// --- gradient ---

Status conv_gradient(GradientBuilder& builder) {
  const NodeView& forward = builder.forward();
  const std::string& op = forward.node().op;
  const ir::ValueId gradient = builder.output_gradient(0);
  if (builder.wants(0)) {
    ir::Attributes attributes = forward.attributes();
    attributes.set("shape", forward.input(0).type.shape);
    const ir::ValueId kept = builder.wants(1) ? builder.input(0) : ir::ValueId();
    builder.set_input_gradient(0, builder.add_one(0, op + "GradInput", {gradient, builder.input(1), kept}, attributes));
  }
  if (builder.wants(1)) {
    builder.set_input_gradient(
        1, builder.add_one(1, op + "GradWeight", {gradient, builder.input(0), builder.input(1)}, forward.attributes()));
  }
  if (!forward.has_input(2) || !builder.wants(2)) return Ok{};
  std::vector<int64_t> axes = {0};
  for (size_t axis = 2; axis < forward.input(0).type.shape.size(); ++axis) axes.push_back(static_cast<int64_t>(axis));
  builder.set_input_gradient(
      2, builder.add_one(2, "ReduceSum", {gradient}, {{"axes", std::move(axes)}, {"keepdims", int64_t{0}}}));
  return Ok{};
}

Inferred infer_conv_grad_input(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 2, 3));
  const ir::Shape shape = node.attributes().get_shape("shape");
  GP_TRY_VOID(conv_form(node, shape, node.input(1).type.shape));
  return one_output(node, {node.input(0).type.dtype, shape});
}

Inferred infer_conv_grad_weight(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 3, 3));
  GP_TRY_VOID(conv_form(node, node.input(1).type.shape, node.input(2).type.shape));
  return one_output(node, node.input(2).type, Mixing::kMixes);
}

// --- entries ---

using Ints = std::vector<int64_t>;

std::vector<Example> conv_examples() {
  return {
      {.inputs = {normal({kB, 4, 5, 4}), weight(normal({6, 4, 3, 3})), weight(normal({6}))},
       .attributes = {{"pads", Ints{1, 1, 1, 1}}, {"strides", Ints{2, 1}}}},
      {.inputs = {normal({kB, 4, 5, 6}), weight(normal({4, 1, 3, 2}))},
       .attributes = {{"group", int64_t{4}}, {"dilations", Ints{1, 2}}, {"pads", Ints{0, 1, 1, 2}}}},
      {.inputs = {normal({kB, 2, 7}), weight(normal({3, 2, 3})), weight(normal({3}))},
       .attributes = {{"strides", Ints{2}}, {"pads", Ints{1, 1}}}},
      {.inputs = {normal({kB, 2, 3, 4, 3}), weight(normal({2, 1, 2, 2, 2}))}, .attributes = {{"group", int64_t{2}}}}};
}

std::vector<Example> conv_transpose_examples() {
  return {{.inputs = {normal({kB, 4, 3, 3}), weight(normal({4, 3, 3, 3})), weight(normal({3}))},
           .attributes = {{"strides", Ints{2, 2}}, {"pads", Ints{1, 1, 1, 1}}, {"output_padding", Ints{1, 1}}}},
          {.inputs = {normal({kB, 4, 3, 4}), weight(normal({4, 2, 3, 2}))},
           .attributes = {{"group", int64_t{2}}, {"pads", Ints{0, 0, 1, 1}}}},
          {.inputs = {normal({kB, 2, 5}), weight(normal({2, 3, 4})), weight(normal({3}))},
           .attributes = {{"strides", Ints{2}}, {"pads", Ints{1, 1}}}}};
}

Example grad_input_example(bool transposed, Ints pads) {
  const ir::Shape x = {kB, ir::Dim::fixed(2), ir::Dim::fixed(5)};
  const int64_t size = transposed ? 7 - pads[0] - pads[1] : 3 + pads[0] + pads[1];
  return {.inputs = {normal({kB, 4, size}), weight(transposed ? normal({2, 4, 3}) : normal({4, 2, 3})), absent()},
          .attributes = {{"pads", std::move(pads)}, {"shape", x}}};
}
Example grad_weight_example(bool transposed, Ints pads) {
  const int64_t size = transposed ? 7 - pads[0] - pads[1] : 3 + pads[0] + pads[1];
  return {
      .inputs = {normal({kB, 4, size}), normal({kB, 2, 5}), weight(transposed ? normal({2, 4, 3}) : normal({4, 2, 3}))},
      .attributes = {{"pads", std::move(pads)}}};
}

std::vector<OpDef> conv_rows(std::string_view forward, std::string_view grad_input, std::string_view grad_weight,
                             bool transposed) {
  return {{.name = forward,
           .precision = Precision::kLower,
           .infer = infer_conv,
           .work = conv_work,
           .gradient = conv_gradient,
           .emit = emit_conv,
           .features = FeatureAxis::kSecond,
           .examples = transposed ? conv_transpose_examples() : conv_examples()},
          {.name = grad_input,
           .infer = infer_conv_grad_input,
           .work = conv_grad_input_work,
           .emit = emit_conv_grad_input,
           .examples = {grad_input_example(transposed, {1, 1}), grad_input_example(transposed, {0, 1})}},
          {.name = grad_weight,
           .infer = infer_conv_grad_weight,
           .work = conv_grad_weight_work,
           .emit = emit_conv_grad_weight,
           .examples = {grad_weight_example(transposed, {1, 1}), grad_weight_example(transposed, {0, 1})}}};
}

}  // namespace

std::span<const OpDef> conv_ops() {
  static const std::vector<OpDef> rows =
      joined({conv_rows("Conv", "ConvGradInput", "ConvGradWeight", false),
              conv_rows("ConvTranspose", "ConvTransposeGradInput", "ConvTransposeGradWeight", true)});
  return rows;
}

}  // namespace graphpipe::ops
