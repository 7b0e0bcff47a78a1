// Normalisation of groups of channels of one sample. InstanceNormalization is the form with one channel per group.
// Outputs y, mean [N, groups] and 1/deviation [N, groups].

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

/// The sizes that the kernels take: x is [N, C, ...], `area` the product of the rest.
struct GroupForm {
  ir::Dim samples;
  int64_t channels = 1, area = 1, groups = 1;
};

// `instance`: one channel per group.
Result<GroupForm> group_form(const NodeView& node, size_t x, bool instance) {
  const ir::Shape& shape = node.input(x).type.shape;
  if (shape.size() < 2) return bad_model(node, text("needs [N, C, ...], found ", shape_text(shape)));
  GroupForm form{.samples = shape[0]};
  for (size_t axis = 1; axis < shape.size(); ++axis) {
    if (!shape[axis].is_fixed()) {
      return problem_at(node, Code::kMixesSamples, text("normalises over the batch, axis ", axis),
                        "put the samples on axis 0");
    }
    if (axis > 1 && __builtin_mul_overflow(form.area, shape[axis].factor, &form.area)) {
      return bad_model(node, "has an impossible size");
    }
  }
  form.channels = shape[1].factor;
  form.groups = instance ? form.channels : node.attributes().get_int("num_groups", 1);
  if (form.groups < 1 || form.channels % form.groups != 0) {
    return bad_model(node, text("cannot divide ", form.channels, " channels into ", form.groups, " groups"));
  }
  return form;
}

bool is_instance(const NodeView& node) { return node.node().op.starts_with("Instance"); }

Inferred infer_group_norm(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 3, 3));
  GP_TRY_VOID(expect_floating(node, {0}));
  GP_TRY_VOID(expect_same_dtype(node, {0, 1, 2}));
  GP_TRY(const GroupForm form, group_form(node, 0, is_instance(node)));
  const ir::Shape channels = {ir::Dim::fixed(form.channels)};
  for (size_t i : {1, 2}) {
    if (node.input(i).type.shape == channels) continue;
    return problem_at(
        node, Code::kUnsupportedOp,
        text("has a scale or bias of shape ", shape_text(node.input(i).type.shape), ", wanted ", shape_text(channels)),
        "convert the model to opset 21 or later");
  }
  const ir::DType dtype = node.input(0).type.dtype;
  const ir::Value statistic = make_value(node, {dtype, {form.samples, ir::Dim::fixed(form.groups)}});
  return checked(node, {make_value(node, node.input(0).type), statistic, statistic});
}

Work group_norm_work(const NodeView& node, Samples samples) {
  return function_of_output(node, samples, wire::kLayerNormFlops);
}
Work group_norm_gradient_work(const NodeView& node, Samples samples) {
  return function_of_input(node, samples, wire::kLayerNormGradientFlops);
}

// "b, 64, 49, 8": sizes as the kernels take them. The form was checked by inference.
std::string sizes_text(const Emitter& emitter, size_t x) {
  const GroupForm form = group_form(emitter.node(), x, is_instance(emitter.node())).value();
  return text(emitter.dim(form.samples), ", ", form.channels, ", ", form.area, ", ", form.groups);
}

void emit_group_norm(Emitter& emitter) {
  assign_parts(emitter,
               text("at::native_group_norm(", emitter.in(0), ".contiguous(), ", emitter.in(1), ", ", emitter.in(2),
                    ", ", sizes_text(emitter, 0), ", ", epsilon_text(emitter.node()), ")"),
               "ATen/ops/native_group_norm.h", 3);
}

// Gradient nodes read (gradient, x, mean, 1/deviation, scale).
Status group_norm_gradient(GradientBuilder& builder) {
  GP_TRY_VOID(expect_no_gradient_of_saved(builder, 1));
  const std::string& op = builder.forward().node().op;
  const std::vector<ir::ValueId> inputs = {builder.output_gradient(0), builder.input(0), builder.output(1),
                                           builder.output(2), builder.input(1)};
  const ir::Attributes& attributes = builder.forward().attributes();
  add_norm_gradients(builder, op, inputs, attributes);
  return Ok{};
}

Inferred infer_group_norm_grad_input(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 5, 5));
  GP_TRY_VOID(group_form(node, 1, is_instance(node)));
  return norm_gradient_values(node, make_value(node, node.input(1).type), node.input(4).type);
}

Inferred infer_group_norm_grad_weight(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 5, 5));
  GP_TRY_VOID(group_form(node, 1, is_instance(node)));
  return norm_gradient_values(node, std::nullopt, node.input(4).type);
}

void emit_group_norm_gradient(Emitter& emitter, std::string_view mask) {
  emitter.statement(text("auto ", emitter.local("parts"), " = at::native_group_norm_backward(", emitter.in(0),
                         ".contiguous(), ", emitter.in(1), ".contiguous(), ", emitter.in(2), ", ", emitter.in(3), ", ",
                         emitter.in(4), ", ", sizes_text(emitter, 1), ", {", mask, "})"),
                    "ATen/ops/native_group_norm_backward.h");
}
void emit_group_norm_grad_input(Emitter& emitter) { emit_norm_grad_input(emitter, emit_group_norm_gradient); }
void emit_group_norm_grad_weight(Emitter& emitter) { emit_norm_grad_weight(emitter, emit_group_norm_gradient); }

std::vector<ExampleInput> forward_inputs() { return {normal({kB, 4, 3, 2}), weight(normal({4})), weight(normal({4}))}; }
std::vector<ExampleInput> gradient_inputs(int64_t groups) {
  return {normal({kB, 4, 3}), normal({kB, 4, 3}), normal({kB, groups}), positive({kB, groups}), weight(normal({4}))};
}

// The three entries of one form.
std::vector<OpDef> form_rows(std::string_view forward, std::string_view grad_input, std::string_view grad_weight,
                             const ir::Attributes& attributes, int64_t groups) {
  ir::Attributes weight_attributes = attributes;
  weight_attributes.set("gives_scale", int64_t{1});
  weight_attributes.set("gives_bias", int64_t{1});
  return {{.name = forward,
           .precision = Precision::kFloat32,
           .infer = infer_group_norm,
           .work = group_norm_work,
           .gradient = group_norm_gradient,
           .emit = emit_group_norm,
           .roles = {ParameterRole::kConstant, ParameterRole::kScale, ParameterRole::kBias},
           .examples = {{.inputs = forward_inputs(), .attributes = attributes, .outputs = 3}}},
          {.name = grad_input,
           .infer = infer_group_norm_grad_input,
           .work = group_norm_gradient_work,
           .emit = emit_group_norm_grad_input,
           .examples = {{.inputs = gradient_inputs(groups), .attributes = attributes},
                        {.inputs = gradient_inputs(groups), .attributes = weight_attributes, .outputs = 3}}},
          {.name = grad_weight,
           .infer = infer_group_norm_grad_weight,
           .work = group_norm_gradient_work,
           .emit = emit_group_norm_grad_weight,
           .examples = {{.inputs = gradient_inputs(groups), .attributes = weight_attributes, .outputs = 2}}}};
}

}  // namespace

std::span<const OpDef> group_norm_ops() {
  static const std::vector<OpDef> rows = joined(
      {form_rows("InstanceNormalization", "InstanceNormalizationGradInput", "InstanceNormalizationGradWeight", {}, 4),
       form_rows("GroupNormalization", "GroupNormalizationGradInput", "GroupNormalizationGradWeight",
                 {{"num_groups", int64_t{2}}}, 2)});
  return rows;
}

}  // namespace graphpipe::ops
