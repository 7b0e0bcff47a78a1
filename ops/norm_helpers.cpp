#include "ops/norm_helpers.h"

#include "ops/emit_helpers.h"

namespace graphpipe::ops {
namespace {

bool gives_scale(const NodeView& node) { return node.attributes().get_int("gives_scale", 0) != 0; }
bool gives_bias(const NodeView& node) { return node.attributes().get_int("gives_bias", 0) != 0; }

/// "true, false": which of the two a kernel should compute.
std::string affine_mask(const NodeView& node) { return boolean(gives_scale(node)) + ", " + boolean(gives_bias(node)); }

std::string gradient_of(Emitter& emitter, size_t part) {
  return text("std::move(std::get<", part, ">(", emitter.local("parts"), "))");
}

void assign_affine_gradients(Emitter& emitter, size_t next) {
  if (gives_scale(emitter.node())) emitter.assign(next++, gradient_of(emitter, 1), "");
  if (gives_bias(emitter.node())) emitter.assign(next, gradient_of(emitter, 2), "");
}

}  // namespace

Status expect_no_gradient_of_saved(const GradientBuilder& builder, size_t first) {
  for (size_t i = first; i < builder.forward().output_count(); ++i) {
    if (!builder.output_gradient(i).valid()) continue;
    return problem_at(builder.forward(), Code::kUntrainable, text("has no gradient through its output ", i),
                      "compute the statistics by operators of their own");
  }
  return Ok{};
}

void add_norm_gradients(GradientBuilder& builder, std::string_view op, const std::vector<ir::ValueId>& inputs,
                        ir::Attributes attributes) {
  const bool x = builder.wants(0), scale = builder.wants(1), bias = builder.forward().has_input(2) && builder.wants(2);
  if (!x && !scale && !bias) return;
  attributes.set("gives_scale", int64_t{scale});
  attributes.set("gives_bias", int64_t{bias});
  const std::string name = text(op, x ? "GradInput" : "GradWeight");
  const std::vector<ir::ValueId> gradients = builder.add(x ? 0 : scale ? 1 : 2, name, inputs, std::move(attributes));
  size_t next = 0;
  if (x) builder.set_input_gradient(0, gradients[next++]);
  if (scale) builder.set_input_gradient(1, gradients[next++]);
  if (bias) builder.set_input_gradient(2, gradients[next]);
}

Inferred norm_gradient_values(const NodeView& node, std::optional<ir::Value> of_x, const ir::TensorType& scale) {
  std::vector<ir::Value> values;
  if (of_x) values.push_back(*of_x);
  values.insert(values.end(), size_t{gives_scale(node)} + size_t{gives_bias(node)},
                make_value(node, scale, Mixing::kMixes));
  GP_CHECK(!values.empty());
  return checked(node, std::move(values));
}

void emit_norm_grad_input(Emitter& emitter, EmitNormGradients emit) {
  emit(emitter, "true, " + affine_mask(emitter.node()));
  emitter.assign(0, gradient_of(emitter, 0), "");
  assign_affine_gradients(emitter, 1);
}

void emit_norm_grad_weight(Emitter& emitter, EmitNormGradients emit) {
  emit(emitter, "false, " + affine_mask(emitter.node()));
  assign_affine_gradients(emitter, 0);
}

}  // namespace graphpipe::ops
