// Det (x [.., n, n]): the determinant of each matrix, via LibTorch's LU factorisation.

#include "ops/emit_helpers.h"
#include "ops/example_helpers.h"
#include "ops/families.h"
#include "ops/infer_helpers.h"

namespace graphpipe::ops {
namespace {

Result<int64_t> matrix_rows(const NodeView& node, const ir::Shape& shape) {
  if (shape.size() >= 2 && shape.back().is_fixed() && shape.back() == shape[shape.size() - 2])
    return shape.back().factor;
  return bad_model(node, text("takes square matrices, and not ", shape_text(shape)));
}

Inferred infer_determinant(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  GP_TRY_VOID(expect_floating(node, {0}));
  ir::TensorType type = node.input(0).type;
  GP_TRY_VOID(matrix_rows(node, type.shape));
  type.shape.resize(type.shape.size() - 2);
  return one_output(node, std::move(type));
}

/// (gradient [..], x [.., n, n])
Inferred infer_determinant_gradient(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 2, 2));
  GP_TRY_VOID(expect_same_dtype(node, {0, 1}));
  GP_TRY_VOID(matrix_rows(node, node.input(1).type.shape));
  return one_output(node, node.input(1).type);
}

/// A factorisation takes 2/3 n^3 operations, and solving for n right-hand sides 2 n^3; the factors are a copy.
Work factorisation_work(const NodeView& node, Samples samples, const ir::Value& x, double cubes) {
  const double all = elements(x, samples);
  return {.flops = cubes * all * static_cast<double>(x.type.shape.back().factor),
          .bytes = bytes_touched(node, samples),
          .scratch = bytes_of(x, samples)};
}
Work determinant_work(const NodeView& node, Samples samples) {
  return factorisation_work(node, samples, node.input(0), 2.0 / 3);
}
Work determinant_gradient_work(const NodeView& node, Samples samples) {
  Work work = factorisation_work(node, samples, node.input(1), 8.0 / 3);
  work.scratch *= 3;  // the factors, the factors with zeros on the diagonal replaced, and the right-hand sides
  return work;
}

/// LAPACK has no 16-bit types: operands are widened, and the result is narrowed.
void emit_determinant(Emitter& emitter) {
  const ir::DType dtype = emitter.node().input(0).type.dtype;
  assign_pattern(emitter,
                 is_16_bits(dtype) ? text("at::linalg_det($0.to(at::kFloat)).to(", scalar_type(dtype), ")")
                                   : std::string("at::linalg_det($0)"),
                 "ATen/ops/linalg_det.h");
}
void emit_determinant_gradient(Emitter& emitter) {
  const ir::DType dtype = emitter.node().input(1).type.dtype;
  const std::string function = "graphpipe::runtime::determinant_gradient";
  assign_pattern(emitter,
                 is_16_bits(dtype)
                     ? text(function, "($0.to(at::kFloat), $1.to(at::kFloat)).to(", scalar_type(dtype), ")")
                     : function + "($0, $1)",
                 "runtime/kernels/determinant.h");
}

Status determinant_gradient(GradientBuilder& builder) {
  if (builder.wants(0))
    builder.set_input_gradient(0, builder.add_one(0, "DetGrad", {builder.output_gradient(0), builder.input(0)}));
  return Ok{};
}

}  // namespace

std::span<const OpDef> determinant_ops() {
  static const std::vector<OpDef> rows = {{.name = "Det",
                                           .precision = Precision::kFloat32,
                                           .infer = infer_determinant,
                                           .work = determinant_work,
                                           .temporaries = 7.5,
                                           .gradient = determinant_gradient,
                                           .emit = emit_determinant,
                                           .examples = {{.inputs = {normal({kB, 3, 3})}},
                                                        {.inputs = {normal({kB, 2, 2, 2})}},
                                                        {.inputs = {normal({kB, 1, 1})}}}},
                                          {.name = "DetGrad",
                                           .infer = infer_determinant_gradient,
                                           .work = determinant_gradient_work,
                                           .temporaries = 8.5,
                                           .emit = emit_determinant_gradient,
                                           .examples = {{.inputs = {normal({kB}), normal({kB, 3, 3})}}}}};
  return rows;
}

}  // namespace graphpipe::ops
