// Powers, whose exponent is mostly one number: the runtime has ways for that which take no tensors in between
// (runtime/kernels/power.h).

#include "ops/emit_helpers.h"
#include "ops/example_helpers.h"
#include "ops/families.h"
#include "ops/gradient_helpers.h"
#include "ops/infer_helpers.h"

namespace graphpipe::ops {
namespace {

constexpr std::string_view kPowerHeader = "runtime/kernels/power.h";

/// The exponent may have a different type; the result has the base's.
Inferred infer_pow(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 2, 2));
  GP_TRY(ir::Shape shape, broadcast_shapes(node, node.input(0).type.shape, node.input(1).type.shape));
  return one_output(node, {node.input(0).type.dtype, std::move(shape)});
}

/// The result has the shape of the gradient (input 0), to which base and exponent broadcast.
Inferred infer_pow_gradient(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 3, node.input_count()));
  GP_TRY_VOID(expect_floating(node, {0}));
  return one_output(node, node.input(0).type);
}

Work power_work(const NodeView& node, Samples samples) { return function_of_output(node, samples, 10); }

Work base_gradient_work(const NodeView& node, Samples samples) {
  Work work = power_work(node, samples);
  // Of exponents that differ: those less one, the powers, and where the exponent is 0, as booleans.
  if (elements(node.input(2), samples) != 1) work.scratch += 2.25 * bytes_of(node.output(0), samples);
  return work;
}

/// Of two tensors of the result, and three of booleans.
Work exponent_gradient_work(const NodeView& node, Samples samples) {
  Work work = power_work(node, samples);
  work.scratch += 2.75 * bytes_of(node.output(0), samples);
  return work;
}

Status pow_gradient(GradientBuilder& builder) {
  const ir::ValueId gradient = builder.output_gradient(0), base = builder.input(0), exponent = builder.input(1);
  if (builder.wants(0)) set_reduced(builder, 0, builder.add_one(0, "PowGradBase", {gradient, base, exponent}));
  if (builder.wants(1))
    set_reduced(builder, 1, builder.add_one(1, "PowGradExponent", {gradient, base, exponent, builder.output(0)}));
  return Ok{};
}

/// The pattern, in the type of input `base`: an exponent of a wider type would widen the result.
void assign_power(Emitter& emitter, std::string pattern, size_t base) {
  const ir::DType dtype = emitter.node().input(base).type.dtype;
  if (emitter.node().input(base + 1).type.dtype != dtype) pattern += ".to(" + scalar_type(dtype) + ")";
  assign_pattern(emitter, pattern, kPowerHeader);
}

}  // namespace

std::span<const OpDef> power_ops() {
  static const std::vector<OpDef> rows = {
      {.name = "Pow",
       .precision = Precision::kFloat32,
       .infer = infer_pow,
       .work = power_work,
       .gradient = pow_gradient,
       .emit = [](Emitter& e) { assign_power(e, "graphpipe::runtime::power($0, $1)", 0); },
       .dependence = Dependence::kElement,
       .examples = {{.inputs = {positive({kB, 2, 3}), normal({kB, 2, 3})}},
                    {.inputs = {positive({kB, 2, 3}), weight(normal({}))}},
                    {.inputs = {normal({kB, 3}), weight(integers({}, 3, 4))}}}},
      // An exponent of 0 gives 0, even where the power of the base would be infinite.
      {.name = "PowGradBase",
       .infer = infer_pow_gradient,
       .work = base_gradient_work,
       .emit = [](Emitter& e) { assign_power(e, "graphpipe::runtime::power_gradient($0, $1, $2)", 1); },
       .dependence = Dependence::kElement,
       .examples = {{.inputs = {positive({kB, 40}), positive({kB, 40}), positive({kB, 40})}},
                    {.inputs = {positive({kB, 40}), positive({kB, 40}), weight(normal({}))}}}},
      {.name = "PowGradExponent",
       .infer = infer_pow_gradient,
       .work = exponent_gradient_work,
       .emit =
           [](Emitter& e) {
             assign_pattern(e, "at::where($1.eq(0.0).logical_and($2.ge(0.0)), 0.0, $3.mul($1.log()).mul_($0))",
                            "ATen/ops/where.h");
           },
       .examples = {{.inputs = {positive({kB, 40}), positive({kB, 40}), positive({kB, 40}), positive({kB, 40})}}}}};
  return rows;
}

}  // namespace graphpipe::ops
