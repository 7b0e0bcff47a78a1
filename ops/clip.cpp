// Clip and HardTanh, and the element-wise ops that give booleans: IsNaN, IsInf, Not.

#include <algorithm>

#include "ops/emit_helpers.h"
#include "ops/example_helpers.h"
#include "ops/families.h"
#include "ops/infer_helpers.h"
#include "support/half_float.h"

namespace graphpipe::ops {
namespace {

// --- Clip{min, max}: either bound may be absent ---

Inferred infer_clip(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  return one_output(node, node.input(0).type);
}

bool has_bound(const NodeView& node) { return node.attributes().has("min") || node.attributes().has("max"); }

/// LibTorch rejects a bound that 16 bits cannot represent.
bool has_wide_bound(const NodeView& node) {
  return !fits_float16(node.attributes().get_double("min", 0)) || !fits_float16(node.attributes().get_double("max", 0));
}

/// A bound in the type of the clipped tensor: a fractional bound would promote integers to float.
std::string bound(const NodeView& node, std::string_view name) {
  const double value = node.attributes().get_double(name, 0);
  if (ir::is_floating(node.output(0).type.dtype)) return number(value);
  return text("int64_t{", static_cast<int64_t>(std::clamp(value, -9e15, 9e15)), "}");
}

void emit_clip(Emitter& emitter) {
  const NodeView& node = emitter.node();
  if (!has_bound(node)) return assign_pattern(emitter, "at::alias($0)", "ATen/ops/alias.h");
  const auto argument = [&](std::string_view name) {
    return node.attributes().has(name) ? text("at::Scalar(", bound(node, name), ")") : std::string("std::nullopt");
  };
  emitter.assign(0, text("at::clamp(", emitter.in(0), ", ", argument("min"), ", ", argument("max"), ")"),
                 "ATen/ops/clamp.h");
}

Status clip_gradient(GradientBuilder& builder) {
  if (!builder.wants(0)) return Ok{};
  builder.set_input_gradient(0, builder.add_one(0, "ClipGrad", {builder.output_gradient(0), builder.input(0)},
                                                builder.forward().attributes()));
  return Ok{};
}

/// (gradient, input or output){min, max}
Inferred infer_clip_gradient(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 2, 2));
  GP_TRY_VOID(expect_floating(node, {0}));
  GP_TRY_VOID(expect_same_type(node, 0, 1));
  return one_output(node, node.input(0).type);
}

void emit_clip_gradient(Emitter& emitter) {
  const NodeView& node = emitter.node();
  if (!has_bound(node)) return assign_pattern(emitter, "at::alias($0)", "ATen/ops/alias.h");
  const double low = node.attributes().get_double("min", -kInfinity),
               high = node.attributes().get_double("max", kInfinity);
  assign_pattern(emitter, text("graphpipe::runtime::clip_gradient($0, $1, ", number(low), ", ", number(high), ")"),
                 "runtime/kernels/clip.h");
}

// --- HardTanh{min, max}: PyTorch's hardtanh and relu6, which are Clip but for the gradient: that ends before the
// bounds, so that the result tells where, and x need not be kept. Only where 16 bits round a bound toward zero, what is
// cut off at it seems to lie before it ---

std::string bounds(const NodeView& node) { return text(bound(node, "min"), ", ", bound(node, "max")); }

void emit_hard_tanh(Emitter& emitter) {
  assign_pattern(emitter, text("at::hardtanh($0, ", bounds(emitter.node()), ")"), "ATen/ops/hardtanh.h");
}
void emit_hard_tanh_in_place(Emitter& emitter) {
  assign_pattern(emitter, text("at::hardtanh_($0, ", bounds(emitter.node()), ")"), "ATen/ops/hardtanh.h");
}

bool has_exact_bounds(const NodeView& node) {
  const ir::DType dtype = node.output(0).type.dtype;
  const auto is_exact = [&](std::string_view name) {
    const double value = node.attributes().get_double(name, 0);
    if (dtype == ir::DType::kFloat16) return is_half(value);
    return dtype != ir::DType::kBFloat16 || is_bfloat(value);
  };
  return is_exact("min") && is_exact("max");
}

Status hard_tanh_gradient(GradientBuilder& builder) {
  if (!builder.wants(0)) return Ok{};
  const ir::ValueId tells = has_exact_bounds(builder.forward()) ? builder.output(0) : builder.input(0);
  builder.set_input_gradient(
      0, builder.add_one(0, "HardTanhGrad", {builder.output_gradient(0), tells}, builder.forward().attributes()));
  return Ok{};
}

void emit_hard_tanh_gradient(Emitter& emitter) {
  assign_pattern(emitter, text("at::hardtanh_backward($0, $1, ", bounds(emitter.node()), ")"),
                 "ATen/ops/hardtanh_backward.h");
}
void emit_hard_tanh_gradient_in_place(Emitter& emitter) {
  assign_pattern(emitter, text("at::hardtanh_backward_out($0, $0, $1, ", bounds(emitter.node()), ")"),
                 "ATen/ops/hardtanh_backward.h");
}

// --- booleans ---

Inferred infer_predicate(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  GP_TRY_VOID(expect_floating(node, {0}));
  return one_output(node, {ir::DType::kBool, node.input(0).type.shape});
}

void emit_is_nan(Emitter& emitter) { assign_pattern(emitter, "at::isnan($0)", "ATen/ops/isnan.h"); }

void emit_is_inf(Emitter& emitter) {
  const bool positive = emitter.node().attributes().get_int("detect_positive", 1) != 0;
  const bool negative = emitter.node().attributes().get_int("detect_negative", 1) != 0;
  if (positive && negative) return assign_pattern(emitter, "at::isinf($0)", "ATen/ops/isinf.h");
  if (positive) return assign_pattern(emitter, "at::isposinf($0)", "ATen/ops/isposinf.h");
  if (negative) return assign_pattern(emitter, "at::isneginf($0)", "ATen/ops/isneginf.h");
  assign_pattern(emitter, "at::zeros_like($0, at::kBool)", "ATen/ops/zeros_like.h");
}

Inferred infer_logical_not(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  if (node.input(0).type.dtype != ir::DType::kBool) return bad_model(node, "is defined on booleans only");
  return one_output(node, node.input(0).type);
}

void emit_logical_not(Emitter& emitter) { assign_pattern(emitter, "at::logical_not($0)", "ATen/ops/logical_not.h"); }

}  // namespace

std::span<const OpDef> clip_ops() {
  const ir::Attributes both = {{"min", -0.5}, {"max", 0.75}};
  const ir::Attributes only_negative = {{"detect_positive", int64_t{0}}};
  static const std::vector<OpDef> rows = {
      {.name = "Clip",
       .keeps_float32 = has_wide_bound,
       .infer = infer_clip,
       .work = one_flop_per_element,
       .gradient = clip_gradient,
       .emit = emit_clip,
       .dependence = Dependence::kElement,
       .examples = {{.inputs = {distinct({kB, 6})}, .attributes = both},
                    {.inputs = {distinct({kB, 6})}, .attributes = {{"min", 0.0}}},
                    {.inputs = {distinct({kB, 6})}},
                    {.inputs = {integers({kB, 6}, -9, 10)}, .attributes = {{"min", -2.0}, {"max", 3.0}}}}},
      {.name = "ClipGrad",
       .infer = infer_clip_gradient,
       .work = one_flop_per_element,
       .emit = emit_clip_gradient,
       .examples = {{.inputs = {normal({kB, 6}), distinct({kB, 6})}, .attributes = both},
                    {.inputs = {normal({kB, 6}), distinct({kB, 6})}, .attributes = {{"max", 0.75}}}}},
      {.name = "HardTanh",
       .keeps_float32 = has_wide_bound,
       .infer = infer_clip,
       .work = one_flop_per_element,
       .gradient = hard_tanh_gradient,
       .emit = emit_hard_tanh,
       .emit_in_place = emit_hard_tanh_in_place,
       .owns_outputs = always,
       .dependence = Dependence::kElement,
       .examples = {{.inputs = {distinct({kB, 3, 4})}, .attributes = both}}},
      {.name = "HardTanhGrad",
       .infer = infer_clip_gradient,
       .work = one_flop_per_element,
       .emit = emit_hard_tanh_gradient,
       .emit_in_place = emit_hard_tanh_gradient_in_place,
       .owns_outputs = always,
       .examples = {{.inputs = {normal({kB, 3, 4}), distinct({kB, 3, 4})}, .attributes = both}}},
      {.name = "IsNaN",
       .infer = infer_predicate,
       .work = one_flop_per_element,
       .emit = emit_is_nan,
       .dependence = Dependence::kElement,
       .examples = {{.inputs = {normal({kB, 3})}}}},
      {.name = "IsInf",
       .infer = infer_predicate,
       .work = one_flop_per_element,
       .emit = emit_is_inf,
       .dependence = Dependence::kElement,
       .examples = {{.inputs = {normal({kB, 3})}}, {.inputs = {normal({kB, 3})}, .attributes = only_negative}}},
      {.name = "Not",
       .infer = infer_logical_not,
       .work = one_flop_per_element,
       .emit = emit_logical_not,
       .dependence = Dependence::kElement,
       .examples = {{.inputs = {booleans({kB, 3})}}}},
  };
  return rows;
}

}  // namespace graphpipe::ops
