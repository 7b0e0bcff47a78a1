// Softmax and the activations that are more than one element-wise formula. A softmax keeps its output for the gradient,
// never its input.

#include "ops/emit_helpers.h"
#include "ops/example_helpers.h"
#include "ops/families.h"
#include "ops/gradient_helpers.h"
#include "ops/infer_helpers.h"
#include "ops/joined_rows.h"
#include "wire/function_flops.h"

namespace graphpipe::ops {
namespace {

// --- Softmax, LogSoftmax ---

int softmax_axis(const NodeView& node) {
  const int64_t axis = node.attributes().get_int("axis", -1);
  return static_cast<int>(axis < 0 ? axis + static_cast<int64_t>(node.input(0).type.shape.size()) : axis);
}

Inferred infer_softmax(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  GP_TRY_VOID(expect_floating(node, {0}));
  GP_TRY(const int axis, axis_attribute(node, "axis", -1, node.input(0).type.shape.size()));
  const Mixing mixing = is_batch_axis(node, 0, axis) ? Mixing::kMixes : Mixing::kNone;
  return one_output(node, node.input(0).type, mixing);
}

Inferred infer_softmax_gradient(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 2, 2));
  GP_TRY(const int axis, axis_attribute(node, "axis", -1, node.input(0).type.shape.size()));
  const Mixing mixing = is_batch_axis(node, 0, axis) ? Mixing::kMixes : Mixing::kNone;
  return one_output(node, node.input(0).type, mixing);
}

// Maximum, subtraction, exponential (counted as 10), sum, division.
Work softmax_work(const NodeView& node, Samples samples) {
  return function_of_output(node, samples, wire::kSoftmaxFlops);
}
Work softmax_gradient_work(const NodeView& node, Samples samples) {
  return function_of_output(node, samples, wire::kSoftmaxGradientFlops);
}

Status softmax_gradient(GradientBuilder& builder) {
  if (!builder.wants(0)) return Ok{};
  const ir::Attributes attributes = {{"axis", int64_t{softmax_axis(builder.forward())}}};
  const std::string op = builder.forward().node().op + "Grad";
  builder.set_input_gradient(0, builder.add_one(0, op, {builder.output_gradient(0), builder.output(0)}, attributes));
  return Ok{};
}

void emit_softmax(Emitter& emitter) {
  const bool is_log = emitter.node().node().op == "LogSoftmax";
  emitter.assign(0,
                 text(is_log ? "at::_log_softmax(" : "at::_softmax(", emitter.in(0), ", ", softmax_axis(emitter.node()),
                      ", false)"),
                 is_log ? "ATen/ops/_log_softmax.h" : "ATen/ops/_softmax.h");
}

void emit_softmax_gradient(Emitter& emitter) {
  const bool is_log = emitter.node().node().op == "LogSoftmaxGrad";
  emitter.assign(0,
                 text(is_log ? "at::_log_softmax_backward_data(" : "at::_softmax_backward_data(", emitter.in(0), ", ",
                      emitter.in(1), ", ", softmax_axis(emitter.node()), ", ",
                      scalar_type(emitter.node().input(1).type.dtype), ")"),
                 is_log ? "ATen/ops/_log_softmax_backward_data.h" : "ATen/ops/_softmax_backward_data.h");
}

std::vector<Example> softmax_examples() {
  return {{.inputs = {normal({kB, 5})}},
          {.inputs = {normal({kB, 3, 4})}, .attributes = {{"axis", int64_t{1}}}},
          {.inputs = {normal({kB, 3})}, .attributes = {{"axis", int64_t{0}}}}};
}
std::vector<Example> softmax_gradient_examples() {
  return {{.inputs = {normal({kB, 5}), normal({kB, 5})}, .attributes = {{"axis", int64_t{1}}}}};
}

// --- Gelu ---

bool is_tanh_form(const NodeView& node) { return node.attributes().get_string("approximate", "none") == "tanh"; }

Inferred infer_gelu(const NodeView& node) {
  const std::string form = node.attributes().get_string("approximate", "none");
  if (form != "none" && form != "tanh") return bad_model(node, "has an approximation other than none and tanh");
  return same_as_first_float_input(node);
}

Work gelu_work(const NodeView& node, Samples samples) { return function_of_output(node, samples, wire::kGeluFlops); }

Status gelu_gradient(GradientBuilder& builder) {
  if (!builder.wants(0)) return Ok{};
  builder.set_input_gradient(0, builder.add_one(0, "GeluGrad", {builder.output_gradient(0), builder.input(0)},
                                                builder.forward().attributes()));
  return Ok{};
}

void emit_gelu(Emitter& emitter) {
  if (is_tanh_form(emitter.node())) return assign_pattern(emitter, "at::gelu($0, \"tanh\")", "ATen/ops/gelu.h");
  assign_pattern(emitter, "graphpipe::runtime::gelu($0)", "runtime/kernels/gelu.h");
}
void emit_gelu_gradient(Emitter& emitter) {
  if (is_tanh_form(emitter.node()))
    return assign_pattern(emitter, "at::gelu_backward($0, $1, \"tanh\")", "ATen/ops/gelu_backward.h");
  assign_pattern(emitter, "graphpipe::runtime::gelu_gradient($0, $1)", "runtime/kernels/gelu.h");
}

constexpr std::string_view kPReluHeader = "runtime/kernels/prelu.h";

// --- PRelu: x where x > 0, else slope * x; the slope broadcasts to x ---

Inferred infer_prelu(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 2, 2));
  GP_TRY_VOID(expect_floating(node, {0, 1}));
  GP_TRY_VOID(expect_same_dtype(node, {0, 1}));
  const ir::Shape& shape = node.input(0).type.shape;
  GP_TRY(const ir::Shape joined, broadcast_shapes(node, shape, node.input(1).type.shape));
  if (joined != shape) return bad_model(node, "has a slope that does not broadcast to its input");
  return one_output(node, node.input(0).type);
}

Work prelu_work(const NodeView& node, Samples samples) { return per_output_element(node, samples, 2); }
// Where the kernels have no loops of their own: products, and which elements are positive.
Work prelu_input_gradient_work(const NodeView& node, Samples samples) {
  Work work = prelu_work(node, samples);
  if (node.input(1).type.dtype != ir::DType::kFloat32)
    work.scratch = elements(node.input(1), samples) + bytes_of(node.input(1), samples);
  return work;
}
Work prelu_slope_gradient_work(const NodeView& node, Samples samples) {
  Work work = per_input_element(node, samples, 2);
  if (node.input(1).type.dtype != ir::DType::kFloat32) work.scratch = bytes_of(node.input(1), samples);
  return work;
}
// (gradient, x, slope)
Inferred infer_prelu_slope_gradient(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 3, 3));
  return one_output(node, node.input(2).type);
}

Status prelu_gradient(GradientBuilder& builder) {
  const ir::ValueId gradient = builder.output_gradient(0);
  const std::vector<ir::ValueId> inputs = {gradient, builder.input(0), builder.input(1)};
  if (builder.wants(0)) builder.set_input_gradient(0, builder.add_one(0, "PReluGradInput", inputs));
  if (builder.wants(1)) builder.set_input_gradient(1, builder.add_one(1, "PReluGradSlope", inputs));
  return Ok{};
}

std::vector<OpDef> softmax_rows() {
  return {{.name = "Softmax",
           .precision = Precision::kFloat32,
           .infer = infer_softmax,
           .work = softmax_work,
           .gradient = softmax_gradient,
           .emit = emit_softmax,
           .owns_outputs = always,
           .dependence = Dependence::kAlongAxis,
           .default_axis = -1,
           .examples = softmax_examples()},
          {.name = "SoftmaxGrad",
           .infer = infer_softmax_gradient,
           .work = softmax_gradient_work,
           .emit = emit_softmax_gradient,
           .owns_outputs = always,
           .examples = softmax_gradient_examples()},
          {.name = "LogSoftmax",
           .precision = Precision::kFloat32,
           .infer = infer_softmax,
           .work = softmax_work,
           .gradient = softmax_gradient,
           .emit = emit_softmax,
           .owns_outputs = always,
           .dependence = Dependence::kAlongAxis,
           .default_axis = -1,
           .examples = softmax_examples()},
          {.name = "LogSoftmaxGrad",
           .infer = infer_softmax_gradient,
           .work = softmax_gradient_work,
           .emit = emit_softmax_gradient,
           .owns_outputs = always,
           .examples = softmax_gradient_examples()}};
}

std::vector<OpDef> activation_rows() {
  return {
      {.name = "Gelu",
       .infer = infer_gelu,
       .work = gelu_work,
       .gradient = gelu_gradient,
       .emit = emit_gelu,
       .owns_outputs = always,
       .dependence = Dependence::kElement,
       .examples = {{.inputs = {normal({kB, 6})}},
                    {.inputs = {normal({kB, 6})}, .attributes = {{"approximate", std::string("tanh")}}}}},
      {.name = "GeluGrad",
       .infer = infer_gelu,
       .work = gelu_work,
       .emit = emit_gelu_gradient,
       .owns_outputs = always,
       .examples = {{.inputs = {normal({kB, 6}), normal({kB, 6})}}}},
      {.name = "PRelu",
       .infer = infer_prelu,
       .work = prelu_work,
       .gradient = prelu_gradient,
       .emit = [](Emitter& e) { assign_pattern(e, "graphpipe::runtime::prelu($0, $1)", kPReluHeader); },
       .owns_outputs = always,
       .dependence = Dependence::kElement,
       .roles = {ParameterRole::kConstant, ParameterRole::kWeight},
       .examples = {{.inputs = {distinct({kB, 3, 4}), weight(uniform01({3, 1}))}},
                    {.inputs = {distinct({kB, 4}), weight(uniform01({1}))}}}},
      {.name = "PReluGradInput",
       .infer = same_as_first_input,
       .work = prelu_input_gradient_work,
       .emit =
           [](Emitter& e) { assign_pattern(e, "graphpipe::runtime::prelu_input_gradient($0, $1, $2)", kPReluHeader); },
       .owns_outputs = always,
       .examples = {{.inputs = {normal({kB, 4}), distinct({kB, 4}), weight(uniform01({1}))}}}},
      {.name = "PReluGradSlope",
       .infer = infer_prelu_slope_gradient,
       .work = prelu_slope_gradient_work,
       .emit =
           [](Emitter& e) { assign_pattern(e, "graphpipe::runtime::prelu_slope_gradient($0, $1, $2)", kPReluHeader); },
       .owns_outputs = always,
       .examples = {{.inputs = {normal({kB, 4}), distinct({kB, 4}), weight(uniform01({1}))}}}}};
}

}  // namespace

std::span<const OpDef> softmax_ops() {
  static const std::vector<OpDef> rows = joined({softmax_rows(), activation_rows()});
  return rows;
}

}  // namespace graphpipe::ops
