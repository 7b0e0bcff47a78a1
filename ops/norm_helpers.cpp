#include "ops/norm_helpers.h"

#include "ops/emit_helpers.h"

namespace graphpipe::ops {
namespace {

bool gives_scale(const NodeView& node) { return node.attributes().get_int("gives_scale", 0) != 0; }
bool gives_bias(const NodeView& node) { return node.attributes().get_int("gives_bias", 0) != 0; }

}  // namespace

Status expect_no_gradient_of_saved(const GradientBuilder& builder, size_t first) {
  for (size_t i = first; i < builder.forward().output_count(); ++i) {
    if (!builder.output_gradient(i).valid()) continue;
    return problem_at(builder.forward(), Code::kUntrainable, text("has no gradient through its output ", i),
                      "compute the statistics by operators of their own");
  }
  return Ok{};
}

void add_affine_gradients(GradientBuilder& builder, std::string_view op, const std::vector<ir::ValueId>& inputs,
                          ir::Attributes attributes) {
  const bool scale = builder.wants(1), bias = builder.forward().has_input(2) && builder.wants(2);
  if (!scale && !bias) return;
  attributes.set("gives_scale", int64_t{scale});
  attributes.set("gives_bias", int64_t{bias});
  const std::vector<ir::ValueId> gradients = builder.add(scale ? 1 : 2, op, inputs, std::move(attributes));
  if (scale) builder.set_input_gradient(1, gradients.front());
  if (bias) builder.set_input_gradient(2, gradients.back());
}

Inferred affine_gradient_values(const NodeView& node, const ir::TensorType& type) {
  const size_t count = size_t{gives_scale(node)} + size_t{gives_bias(node)};
  GP_CHECK(count > 0);
  return checked(node, std::vector<ir::Value>(count, make_value(node, type, Mixing::kMixes)));
}

std::string affine_mask(const NodeView& node) { return boolean(gives_scale(node)) + ", " + boolean(gives_bias(node)); }

void assign_affine_gradients(Emitter& emitter, std::string_view parts) {
  size_t next = 0;
  if (gives_scale(emitter.node())) emitter.assign(next++, text("std::move(std::get<1>(", parts, "))"), "");
  if (gives_bias(emitter.node())) emitter.assign(next, text("std::move(std::get<2>(", parts, "))"), "");
}

}  // namespace graphpipe::ops
