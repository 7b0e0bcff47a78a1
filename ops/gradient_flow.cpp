// Ops that return their first input and only control the gradient through it.
//
// Detach is torch's: it blocks the gradient. Gate lets the gradient through where a condition holds. It is placed
// before the inputs of a branch that only some data take: the branch is computed for all of them, and where it was not
// taken, its derivative may be infinite, which multiplied by the zero that comes back would be NaN.

#include "ops/emit_helpers.h"
#include "ops/example_helpers.h"
#include "ops/families.h"
#include "ops/gradient_helpers.h"
#include "ops/infer_helpers.h"
#include "ops/sample_sum.h"

namespace graphpipe::ops {
namespace {

void emit_alias(Emitter& emitter) { assign_pattern(emitter, "at::alias($0)", "ATen/ops/alias.h"); }

Inferred infer_detach(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  return one_output(node, node.input(0).type);
}

Inferred infer_gate(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 2, 2));
  GP_TRY_VOID(expect_floating(node, {0}));
  if (node.input(1).type != ir::TensorType{ir::DType::kBool, {}})
    return bad_model(node, "has a condition that is no single number of bool");
  return one_output(node, node.input(0).type);
}

Status gate_gradient(GradientBuilder& builder) {
  if (!builder.wants(0)) return Ok{};
  builder.set_input_gradient(0, builder.add_one(0, "WhereGradTrue", {builder.output_gradient(0), builder.input(1)}));
  return Ok{};
}

bool is_its_input(const NodeView&) { return true; }

std::vector<OpDef> flow_rows() {
  return {{.name = "Detach",
           .infer = infer_detach,
           .work = no_work,
           .emit = emit_alias,
           .dependence = Dependence::kElement,
           .is_view = always,
           .sample_sum = as_first_input,
           .keeps_elements = is_its_input,
           .examples = {{.inputs = {normal({kB, 3})}}}},
          {.name = "Gate",
           .infer = infer_gate,
           .work = no_work,
           .gradient = gate_gradient,
           .emit = emit_alias,
           .dependence = Dependence::kElement,
           .is_view = always,
           .keeps_elements = is_its_input,
           .examples = {{.inputs = {normal({kB, 3}), weight(integers({}, 1, 2, ir::DType::kBool))}}}}};
}

}  // namespace

std::span<const OpDef> gradient_flow_ops() {
  static const std::vector<OpDef> rows = flow_rows();
  return rows;
}

}  // namespace graphpipe::ops
