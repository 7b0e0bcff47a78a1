// Normalisation over the trailing axes of each sample: LayerNormalization and RMSNormalization. Both keep the row
// statistics (one or two numbers per row) for the gradient, as additional outputs after ONNX's first.

#include <algorithm>

#include "ops/emit_helpers.h"
#include "ops/example_helpers.h"
#include "ops/families.h"
#include "ops/gradient_helpers.h"
#include "ops/infer_helpers.h"
#include "ops/joined_rows.h"
#include "ops/norm_helpers.h"
#include "wire/function_flops.h"

namespace graphpipe::ops {
namespace {

size_t first_normalized_axis(const NodeView& node, size_t x) {
  const auto rank = static_cast<int64_t>(node.input(x).type.shape.size());
  const int64_t axis = node.attributes().get_int("axis", -1);
  return static_cast<size_t>(axis < 0 ? axis + rank : axis);
}

/// The normalised axes of input `x`, as a shape.
ir::Shape normalized_shape(const NodeView& node, size_t x) {
  const ir::Shape& shape = node.input(x).type.shape;
  return {shape.begin() + static_cast<std::ptrdiff_t>(first_normalized_axis(node, x)), shape.end()};
}

// Checks input x against the shape that scale and bias must have; returns the shape of the row statistics.
Result<ir::Shape> statistics_shape(const NodeView& node, size_t x) {
  const ir::Shape& shape = node.input(x).type.shape;
  GP_TRY_VOID(axis_attribute(node, "axis", -1, shape.size()));
  const size_t first = first_normalized_axis(node, x);
  ir::Shape statistics = shape;
  for (size_t axis = first; axis < shape.size(); ++axis) {
    if (!shape[axis].is_fixed()) {
      return problem_at(node, Code::kMixesSamples, text("normalises over the batch, axis ", axis),
                        "normalise over axes of one sample");
    }
    statistics[axis] = ir::Dim::fixed(1);
  }
  return statistics;
}

Status expect_affine(const NodeView& node, size_t x, std::initializer_list<size_t> inputs) {
  const ir::Shape wanted = normalized_shape(node, x);
  for (size_t i : inputs) {
    if (!node.has_input(i) || node.input(i).type.shape == wanted) continue;
    return problem_at(node, Code::kUnsupportedOp,
                      text("has a scale or bias of shape ", shape_text(node.input(i).type.shape),
                           ", the normalised axes have ", shape_text(wanted)),
                      "expand the scale and the bias to the normalised axes");
  }
  return Ok{};
}

// --- LayerNormalization(x, scale, bias): y, mean, 1/deviation ---

Inferred infer_layer_norm(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 2, 3));
  GP_TRY_VOID(expect_floating(node, {0}));
  GP_TRY_VOID(expect_same_dtype(node, {0, 1, 2}));
  GP_TRY(const ir::Shape statistics, statistics_shape(node, 0));
  GP_TRY_VOID(expect_affine(node, 0, {1, 2}));
  const ir::TensorType& type = node.input(0).type;
  const ir::Value statistic = make_value(node, {type.dtype, statistics});
  return checked(node, {make_value(node, type), statistic, statistic});
}

Work norm_work(const NodeView& node, Samples samples) {
  return function_of_output(node, samples, wire::kLayerNormFlops);
}
Work norm_gradient_work(const NodeView& node, Samples samples) {
  return function_of_input(node, samples, wire::kLayerNormGradientFlops);
}
/// 16-bit operands are widened: this adds that many float32 tensors.
Work widened(Work work, const ir::Value& x, Samples samples, double tensors) {
  if (is_16_bits(x.type.dtype)) work.scratch += tensors * 4 * elements(x, samples);
  return work;
}
Work rms_norm_work(const NodeView& node, Samples samples) {
  return widened(function_of_output(node, samples, wire::kOwnNormFlops), node.input(0), samples, 2);
}
Work rms_norm_gradient_work(const NodeView& node, Samples samples) {
  return widened(function_of_input(node, samples, wire::kOwnNormGradientFlops), node.input(1), samples, 3);
}

void emit_layer_norm(Emitter& emitter) {
  assign_parts(emitter,
               text("at::native_layer_norm(", emitter.in(0), ", ", emitter.dims(normalized_shape(emitter.node(), 0)),
                    ", ", emitter.in(1), ", ", emitter.in(2), ", ", epsilon_text(emitter.node()), ")"),
               "ATen/ops/native_layer_norm.h", 3);
}

// Gradient nodes read (gradient, x, mean, 1/deviation, scale).
Status layer_norm_gradient(GradientBuilder& builder) {
  GP_TRY_VOID(expect_no_gradient_of_saved(builder, 1));
  const std::vector<ir::ValueId> inputs = {builder.output_gradient(0), builder.input(0), builder.output(1),
                                           builder.output(2), builder.input(1)};
  ir::Attributes attributes = {{"axis", static_cast<int64_t>(first_normalized_axis(builder.forward(), 0))}};
  add_norm_gradients(builder, "LayerNormalization", inputs, std::move(attributes));
  return Ok{};
}

Inferred infer_layer_norm_grad_input(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 5, 5));
  return norm_gradient_values(node, make_value(node, node.input(1).type), node.input(4).type);
}

Inferred infer_layer_norm_grad_weight(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 5, 5));
  return norm_gradient_values(node, std::nullopt, node.input(4).type);
}

// The kernel only uses the shape of the bias, which is that of the scale.
void emit_layer_norm_gradient(Emitter& emitter, std::string_view mask) {
  const std::string parts = emitter.local("parts");
  emitter.statement(text("auto ", parts, " = at::native_layer_norm_backward(", emitter.in(0), ", ", emitter.in(1), ", ",
                         emitter.dims(normalized_shape(emitter.node(), 1)), ", ", emitter.in(2), ", ", emitter.in(3),
                         ", ", emitter.in(4), ", ", emitter.in(4), ", {", mask, "})"),
                    "ATen/ops/native_layer_norm_backward.h");
}
void emit_layer_norm_grad_input(Emitter& emitter) { emit_norm_grad_input(emitter, emit_layer_norm_gradient); }
void emit_layer_norm_grad_weight(Emitter& emitter) { emit_norm_grad_weight(emitter, emit_layer_norm_gradient); }

// --- RMSNormalization(x, scale): y, 1/root mean square ---

Inferred infer_rms_norm(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 2, 2));
  GP_TRY_VOID(expect_floating(node, {0}));
  GP_TRY_VOID(expect_same_dtype(node, {0, 1}));
  GP_TRY(ir::Shape statistics, statistics_shape(node, 0));
  GP_TRY_VOID(expect_affine(node, 0, {1}));
  const ir::TensorType& type = node.input(0).type;
  // 16 bits cannot represent squares of large numbers, nor one over the root of small ones.
  const ir::DType of_statistics = is_16_bits(type.dtype) ? ir::DType::kFloat32 : type.dtype;
  return checked(node, {make_value(node, type), make_value(node, {of_statistics, std::move(statistics)})});
}

constexpr std::string_view kRmsNorm = "runtime/kernels/rms_norm.h";

void emit_rms_norm(Emitter& emitter) {
  const NodeView& node = emitter.node();
  const size_t axes = node.input(0).type.shape.size() - first_normalized_axis(node, 0);
  assign_parts(
      emitter,
      text("graphpipe::runtime::rms_norm(", filled_in(emitter, "$0, $1, "), axes, ", ", epsilon_text(node), ")"),
      kRmsNorm, 2);
}

Status rms_norm_gradient(GradientBuilder& builder) {
  GP_TRY_VOID(expect_no_gradient_of_saved(builder, 1));
  const ir::Attributes attributes = {{"axis", static_cast<int64_t>(first_normalized_axis(builder.forward(), 0))}};
  const ir::ValueId gradient = builder.output_gradient(0), x = builder.input(0), rms = builder.output(1);
  if (builder.wants(0)) {
    builder.set_input_gradient(
        0, builder.add_one(0, "RMSNormalizationGradInput", {gradient, x, rms, builder.input(1)}, attributes));
  }
  if (builder.wants(1)) {
    set_reduced(builder, 1, builder.add_one(1, "RMSNormalizationGradScale", {gradient, x, rms}));
  }
  return Ok{};
}

Inferred infer_like_x(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 3, 4));
  return one_output(node, node.input(1).type);
}

void emit_rms_norm_grad_input(Emitter& emitter) {
  assign_pattern(emitter, "graphpipe::runtime::rms_norm_input_gradient($0, $1, $2, $3)", kRmsNorm);
}

void emit_rms_norm_grad_scale(Emitter& emitter) {
  const ir::DType dtype = emitter.node().input(1).type.dtype;
  if (!is_16_bits(dtype)) return assign_pattern(emitter, "at::mul($0, $1).mul_($2)", kMulHeader);
  assign_pattern(emitter, text("at::mul($1, $2).mul_($0).to(", scalar_type(dtype), ")"), kMulHeader);
}

// --- entries ---

std::vector<Example> layer_norm_examples() {
  return {{.inputs = {normal({kB, 3, 4}), weight(normal({4})), weight(normal({4}))},
           .attributes = {{"axis", int64_t{2}}},
           .outputs = 3},
          {.inputs = {normal({kB, 3, 4}), weight(normal({3, 4})), absent()},
           .attributes = {{"axis", int64_t{1}}, {"epsilon", 0.01}},
           .outputs = 3}};
}

std::vector<ExampleInput> layer_norm_gradient_inputs() {
  return {normal({kB, 3, 4}), normal({kB, 3, 4}), normal({kB, 3, 1}), positive({kB, 3, 1}), weight(normal({4}))};
}

std::vector<OpDef> layer_norm_rows() {
  return {
      {.name = "LayerNormalization",
       .precision = Precision::kFloat32,
       .infer = infer_layer_norm,
       .work = norm_work,
       .gradient = layer_norm_gradient,
       .emit = emit_layer_norm,
       .owns_outputs = always,
       .features = FeatureAxis::kLast,
       .roles = {ParameterRole::kConstant, ParameterRole::kScale, ParameterRole::kBias},
       .default_axis = -1,
       .examples = layer_norm_examples()},
      {.name = "LayerNormalizationGradInput",
       .infer = infer_layer_norm_grad_input,
       .work = norm_gradient_work,
       .emit = emit_layer_norm_grad_input,
       .owns_outputs = always,
       .examples = {{.inputs = layer_norm_gradient_inputs()},
                    {.inputs = layer_norm_gradient_inputs(), .attributes = {{"gives_bias", int64_t{1}}}, .outputs = 2},
                    {.inputs = layer_norm_gradient_inputs(), .attributes = {{"gives_scale", int64_t{1}}}, .outputs = 2},
                    {.inputs = layer_norm_gradient_inputs(),
                     .attributes = {{"gives_scale", int64_t{1}}, {"gives_bias", int64_t{1}}},
                     .outputs = 3}}},
      {.name = "LayerNormalizationGradWeight",
       .infer = infer_layer_norm_grad_weight,
       .work = norm_gradient_work,
       .emit = emit_layer_norm_grad_weight,
       .owns_outputs = always,
       .examples = {{.inputs = layer_norm_gradient_inputs(),
                     .attributes = {{"gives_scale", int64_t{1}}, {"gives_bias", int64_t{1}}},
                     .outputs = 2}}}};
}

std::vector<OpDef> rms_norm_rows() {
  return {{.name = "RMSNormalization",
           .precision = Precision::kFloat32,
           .infer = infer_rms_norm,
           .work = rms_norm_work,
           .gradient = rms_norm_gradient,
           .emit = emit_rms_norm,
           .owns_outputs = always,
           .roles = {ParameterRole::kConstant, ParameterRole::kScale},
           .default_axis = -1,
           .examples = {{.inputs = {normal({kB, 3, 4}), weight(normal({4}))}, .outputs = 2},
                        {.inputs = {normal({kB, 3, 4}), weight(normal({3, 4}))},
                         .attributes = {{"axis", int64_t{1}}},
                         .outputs = 2}}},
          {.name = "RMSNormalizationGradInput",
           .infer = infer_like_x,
           .work = rms_norm_gradient_work,
           .emit = emit_rms_norm_grad_input,
           .owns_outputs = always,
           .examples = {{.inputs = {normal({kB, 4}), normal({kB, 4}), positive({kB, 1}), weight(normal({4}))}}}},
          {.name = "RMSNormalizationGradScale",
           .infer = infer_like_x,
           .work = rms_norm_gradient_work,
           .emit = emit_rms_norm_grad_scale,
           .owns_outputs = always,
           .examples = {{.inputs = {normal({kB, 4}), normal({kB, 4}), positive({kB, 1})}}}}};
}

}  // namespace

std::span<const OpDef> norm_ops() {
  static const std::vector<OpDef> rows = joined({layer_norm_rows(), rms_norm_rows()});
  return rows;
}

}  // namespace graphpipe::ops
