// Convolutions over one to three spatial axes. x is [N, C, ...]; the weight of Conv is [M, C/group, ...], that of
// ConvTranspose [C, M/group, ...]. Pads that differ at the two ends become a separate padding (Conv) or slice
// (ConvTranspose), because the kernels only support equal pads.
//
// Gradient nodes: <Op>GradInput(gradient, weight, x or absent) {shape of x} and <Op>GradWeight(gradient, x, weight).
// The input gradient needs only the shape of x. It names x only if the weight gradient keeps x anyway: the CPU kernel
// then needs no placeholder to fill.

#include <algorithm>
#include <array>

#include "ops/conv_form.h"
#include "ops/conv_scratch.h"
#include "ops/emit_helpers.h"
#include "ops/example_helpers.h"
#include "ops/families.h"
#include "ops/gradient_helpers.h"
#include "ops/infer_helpers.h"
#include "ops/joined_rows.h"
#include "ops/spatial.h"
#include "wire/depthwise.h"

namespace graphpipe::ops {
namespace {

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

// Multiply-adds: every element of `many` is multiplied by the weights of one of its group's channels.
double multiply_adds(const ir::Value& many, const ir::Value& weight, Samples samples) {
  return elements(many, samples) * elements(weight, samples) / static_cast<double>(weight.type.shape[0].factor);
}

// Conv: each output element sums C/group * kernel products. ConvTranspose: each input element contributes to M/group *
// kernel outputs.
Work product_work(const NodeView& node, const ConvOperands& operands, Samples samples) {
  const ir::Value& many = is_transposed(node) ? operands.x : operands.y;
  Work work{.flops = 2 * multiply_adds(many, operands.weight, samples),
            .bytes = bytes_touched(node, samples),
            .scratch = conv_scratch(node, operands, samples),
            .kernel = winograd_pass(node, operands, samples) ? Kernel::kWinograd : Kernel::kConvolution};
  if (is_depthwise(node, operands)) {
    work.kernel = Kernel::kDepthwise;
    work.flops += wire::kFlopsOfDepthwisePlane * static_cast<double>(operands.x.type.shape[0].at(samples)) *
                  static_cast<double>(operands.x.type.shape[1].factor);
  }
  return work;
}
ConvOperands conv_operands(const NodeView& node) {
  return {node.input(0), node.output(0), node.input(1), node.output(0)};
}
ConvOperands grad_input_operands(const NodeView& node) {
  return {node.output(0), node.input(0), node.input(1), node.output(0)};
}
ConvOperands grad_weight_operands(const NodeView& node) {
  return {node.input(1), node.input(0), node.output(0), node.output(0)};
}

template <ConvOperands (*kOperands)(const NodeView&)>
Work convolution_work(const NodeView& node, Samples samples) {
  return product_work(node, kOperands(node), samples);
}
template <ConvOperands (*kOperands)(const NodeView&)>
std::optional<wire::Convolution> pass_of(const NodeView& node, Samples samples) {
  return winograd_pass(node, kOperands(node), samples);
}
bool conv_makes_share(const NodeView& node, Samples samples) {
  return !adds_in_place(node, grad_weight_operands(node), samples);
}

// --- calls ---

// Pads for the kernel, and the remainder that needs a separate padding or slice.
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
    // A transposed convolution can only drop what both ends have in common; a plain one is padded in full beforehand.
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

// The runtime's own functions for a convolution and its gradients.
struct RuntimeKernels {
  std::string_view name, header;
};
std::optional<RuntimeKernels> runtime_kernels(const NodeView& node, const ConvForm& form, const ir::Shape& x,
                                              const ir::Shape& weight) {
  if (is_plane(node, form)) return RuntimeKernels{"convolution", "runtime/kernels/convolution.h"};
  if (is_depthwise(node, form, x, weight))
    return RuntimeKernels{"depthwise_convolution", "runtime/kernels/depthwise_convolution.h"};
  return std::nullopt;
}

// "graphpipe::runtime::NAME(operands, {{strides}, {pads}, {dilations}})"
std::string plane_call(std::string_view name, const std::string& operands, const ConvForm& form, const Pads& pads) {
  return text("graphpipe::runtime::", name, "(", operands, ", {", list(form.window.strides), ", ", list(pads.kernel),
              ", ", list(form.window.dilations), "})");
}

void emit_conv(Emitter& emitter) {
  const NodeView& node = emitter.node();
  const ConvForm form = conv_form(node, node.input(0).type.shape, node.input(1).type.shape).value();
  const bool transposed = is_transposed(node);
  const Pads pads = split_pads(form.window, transposed);
  const bool pads_before = pads.has_rest && !transposed;
  const std::string x = pads_before ? padded(emitter, emitter.in(0), pads.begin, pads.end) : emitter.in(0);
  if (const auto kernels = runtime_kernels(node, form, node.input(0).type.shape, node.input(1).type.shape)) {
    const std::string bias = node.has_input(2) ? emitter.in(2) : "{}";
    const std::string operands = text(x, ", ", emitter.in(1), ", ", bias);
    return emitter.assign(0, plane_call(kernels->name, operands, form, pads), kernels->header);
  }
  std::string call =
      text("at::convolution(", x, ", ", emitter.in(1), ", ", emitter.in(2), geometry(form, pads, transposed), ")");
  if (pads.has_rest && transposed) call = padded(emitter, call, negated(pads.begin), negated(pads.end));
  emitter.assign(0, call, "ATen/ops/convolution.h");
}

// Element `part` of the tuple of three gradients; only this one is computed.
std::string backward_call(int part, const std::string& operands, const std::string& tail) {
  return text("std::get<", part, ">(at::convolution_backward(", operands, ", std::nullopt", tail, ", {",
              part == 0 ? "true, false" : "false, true", ", false}))");
}
constexpr std::string_view kBackward = "ATen/ops/convolution_backward.h";

// Shapes with the remaining pads added to the spatial axes.
ir::Shape grown(ir::Shape shape, const Pads& pads) {
  for (size_t axis = 0; axis < pads.begin.size(); ++axis) shape[axis + 2].factor += pads.begin[axis] + pads.end[axis];
  return shape;
}

// The output gradient for the kernel's own output: sliced parts are filled with zeros.
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
  const std::string operands = text(kernel_gradient(emitter, pads), ", ", x, ", ", emitter.in(1));
  const auto kernels = runtime_kernels(node, form, shape, node.input(1).type.shape);
  std::string result = kernels ? plane_call(text(kernels->name, "_input_gradient"), operands, form, pads)
                               : backward_call(0, operands, geometry(form, pads, transposed));
  if (was_padded) result = padded(emitter, result, negated(pads.begin), negated(pads.end));
  emitter.assign(0, result, kernels ? kernels->header : kBackward);
}

struct WeightGradientCall {
  ConvForm form;
  Pads pads;
  std::string operands;  // "gradient, x, weight"
  std::optional<RuntimeKernels> kernels;
};

WeightGradientCall weight_gradient_call(Emitter& emitter) {
  const NodeView& node = emitter.node();
  const ConvForm form = conv_form(node, node.input(1).type.shape, node.input(2).type.shape).value();
  const Pads pads = split_pads(form.window, is_transposed(node));
  const bool was_padded = pads.has_rest && !is_transposed(node);
  const std::string x = was_padded ? padded(emitter, emitter.in(1), pads.begin, pads.end) : emitter.in(1);
  return {form, pads, text(kernel_gradient(emitter, pads), ", ", x, ", ", emitter.in(2)),
          runtime_kernels(node, form, node.input(1).type.shape, node.input(2).type.shape)};
}

std::string share_call(const NodeView& node, const WeightGradientCall& call) {
  return backward_call(1, call.operands, geometry(call.form, call.pads, is_transposed(node)));
}

void emit_conv_grad_weight(Emitter& emitter) {
  const WeightGradientCall call = weight_gradient_call(emitter);
  if (!call.kernels) return emitter.assign(0, share_call(emitter.node(), call), kBackward);
  const std::string name = text(call.kernels->name, "_weight_gradient");
  emitter.assign(0, plane_call(name, call.operands, call.form, call.pads), call.kernels->header);
}

void accumulate_conv_grad_weight(Emitter& emitter, std::string_view place) {
  const WeightGradientCall call = weight_gradient_call(emitter);
  if (call.kernels) {
    const std::string name = text("add_", call.kernels->name, "_weight_gradient");
    const std::string operands = text(place, ", ", call.operands);
    return emitter.statement(plane_call(name, operands, call.form, call.pads), call.kernels->header);
  }
  emitter.include("runtime/add_share.h");
  emitter.statement(text("graphpipe::runtime::add_share(", place, ", ", share_call(emitter.node(), call), ")"),
                    kBackward);
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
           .work = convolution_work<conv_operands>,
           .convolution = pass_of<conv_operands>,
           .gradient = conv_gradient,
           .emit = emit_conv,
           .owns_outputs = always,
           .features = FeatureAxis::kSecond,
           .roles = {ParameterRole::kConstant, ParameterRole::kWeight, ParameterRole::kBias},
           .read_in_order = {0},
           .examples = transposed ? conv_transpose_examples() : conv_examples()},
          {.name = grad_input,
           .infer = infer_conv_grad_input,
           .work = convolution_work<grad_input_operands>,
           .convolution = pass_of<grad_input_operands>,
           .emit = emit_conv_grad_input,
           .owns_outputs = always,
           .read_in_order = {0},
           .examples = {grad_input_example(transposed, {1, 1}), grad_input_example(transposed, {0, 1})}},
          {.name = grad_weight,
           .infer = infer_conv_grad_weight,
           .work = convolution_work<grad_weight_operands>,
           .convolution = pass_of<grad_weight_operands>,
           .emit = emit_conv_grad_weight,
           .owns_outputs = always,
           .accumulate = accumulate_conv_grad_weight,
           .makes_share = conv_makes_share,
           .read_in_order = {0, 1},
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
