// Matrix products. Weight gradients of a batched product flatten the rows into one matrix product, so that no tensor
// with one gradient per sample is created.

#include <algorithm>

#include "ops/emit_helpers.h"
#include "ops/example_helpers.h"
#include "ops/families.h"
#include "ops/gradient_helpers.h"
#include "ops/infer_helpers.h"
#include "ops/joined_rows.h"
#include "ops/sample_sum.h"

namespace graphpipe::ops {
namespace {

constexpr std::string_view kMatMul = "ATen/ops/matmul.h";

const ir::Shape& shape_at(const NodeView& node, size_t i) { return node.input(i).type.shape; }

Diagnostic inner_mismatch(const NodeView& node) {
  return bad_model(node,
                   text("cannot multiply ", shape_text(shape_at(node, 0)), " and ", shape_text(shape_at(node, 1))));
}

// --- MatMul: numpy's matmul ---

struct ProductShapes {
  ir::Shape left, right;  // of rank 2 at least
  ir::Shape result;
};

// The shapes of a product, with the axes of size 1 that numpy adds to vectors.
Result<ProductShapes> product_shapes(const NodeView& node, ir::Shape left, ir::Shape right) {
  if (left.empty() || right.empty()) return bad_model(node, "takes no scalars");
  const bool left_is_vector = left.size() == 1, right_is_vector = right.size() == 1;
  if (left_is_vector) left.insert(left.begin(), ir::Dim::fixed(1));
  if (right_is_vector) right.push_back(ir::Dim::fixed(1));
  const ir::Dim inner = left.back();
  if (inner != right[right.size() - 2]) return inner_mismatch(node);
  const ir::Shape left_batch(left.begin(), left.end() - 2), right_batch(right.begin(), right.end() - 2);
  GP_TRY(ir::Shape result, broadcast_shapes(node, left_batch, right_batch));
  if (!left_is_vector) result.push_back(left[left.size() - 2]);
  if (!right_is_vector) result.push_back(right.back());
  return ProductShapes{std::move(left), std::move(right), std::move(result)};
}

Inferred infer_matmul(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 2, 2));
  GP_TRY_VOID(expect_same_dtype(node, {0, 1}));
  GP_TRY_VOID(expect_floating(node, {0, 1}));
  GP_TRY(ProductShapes shapes, product_shapes(node, shape_at(node, 0), shape_at(node, 1)));
  const Mixing mixing = shapes.left.back().is_fixed() ? Mixing::kNone : Mixing::kMixes;
  return one_output(node, {node.input(0).type.dtype, std::move(shapes.result)}, mixing);
}

// Two flops for each element of the result and each element of the summed dim.
Work product_work(const NodeView& node, Samples samples, ir::Dim inner) {
  return per_output_element(node, samples, 2.0 * static_cast<double>(inner.at(samples)));
}

/// LibTorch copies stacks of matrices that are repeated to match different outer axes.
double repeated_bytes(const NodeView& node, Samples samples) {
  const auto stack = [&](const ir::Value& value) {
    ir::Value outer = value;
    outer.type.shape.resize(value.type.shape.size() - 2);
    return elements(outer, samples);
  };
  if (std::min(shape_at(node, 0).size(), shape_at(node, 1).size()) <= 2 || node.output(0).type.shape.size() <= 2)
    return 0;
  // A single outer axis is repeated with a stride of zero, without a copy.
  const ir::Shape& result = node.output(0).type.shape;
  const auto outer =
      std::count_if(result.begin(), result.end() - 2, [](ir::Dim dim) { return dim != ir::Dim::fixed(1); });
  if (outer < 2) return 0;
  const double all = std::max({stack(node.input(0)), stack(node.input(1)), stack(node.output(0))});
  double bytes = 0;
  for (size_t i = 0; i < 2; ++i)
    if (const double own = stack(node.input(i)); own < all) bytes += bytes_of(node.input(i), samples) * all / own;
  return bytes;
}
Work matmul_work(const NodeView& node, Samples samples) {
  Work work = product_work(node, samples, shape_at(node, 0).back());
  work.scratch = repeated_bytes(node, samples);
  return work;
}

void emit_matmul(Emitter& emitter) { assign_call(emitter, "at::matmul", kMatMul); }

// Gradients only handle products of rank 2 and more; vectors become matrices by views first.
struct ProductGradient {
  GradientBuilder& builder;
  size_t left_rank = shape().size();
  size_t right_rank = builder.forward().input(1).type.shape.size();

  const ir::Shape& shape() const { return builder.forward().input(0).type.shape; }

  ir::ValueId unsqueezed(size_t for_input, ir::ValueId value, size_t axis) const {
    return builder.add_one(for_input, "Unsqueeze", {value},
                           {{"axes", std::vector<int64_t>{static_cast<int64_t>(axis)}}});
  }
  ir::ValueId left(size_t for_input) const {
    return left_rank == 1 ? unsqueezed(for_input, builder.input(0), 0) : builder.input(0);
  }
  ir::ValueId right(size_t for_input) const {
    return right_rank == 1 ? unsqueezed(for_input, builder.input(1), 1) : builder.input(1);
  }
  ir::ValueId output(size_t for_input) const {
    ir::ValueId gradient = builder.output_gradient(0);
    size_t rank = builder.forward().output(0).type.shape.size();
    if (right_rank == 1) gradient = unsqueezed(for_input, gradient, rank++);
    if (left_rank == 1) gradient = unsqueezed(for_input, gradient, rank - 1);
    return gradient;
  }
};

Status matmul_gradient(GradientBuilder& builder) {
  const ProductGradient product{builder};
  if (builder.wants(0)) {
    set_reduced(builder, 0, builder.add_one(0, "MatMulGradLeft", {product.output(0), product.right(0)}));
  }
  if (!builder.wants(1)) return Ok{};
  ir::ValueId gradient;
  if (product.right_rank <= 2) {
    gradient = builder.add_one(1, "MatMulGradWeight", {product.left(1), product.output(1)});
  } else {
    gradient = builder.add_one(1, "MatMulGradRight", {product.left(1), product.output(1)});
  }
  if (product.right_rank == 1)
    gradient = builder.add_one(1, "Squeeze", {gradient}, {{"axes", std::vector<int64_t>{1}}});
  set_reduced(builder, 1, gradient);
  return Ok{};
}

ir::Shape transposed(ir::Shape shape) {
  std::swap(shape[shape.size() - 1], shape[shape.size() - 2]);
  return shape;
}

// (gradient [.., M, N], right [.., K, N]) -> [.., M, K]
Inferred infer_matmul_grad_left(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 2, 2));
  if (shape_at(node, 1).size() < 2) return inner_mismatch(node);
  GP_TRY(ProductShapes shapes, product_shapes(node, shape_at(node, 0), transposed(shape_at(node, 1))));
  const Mixing mixing = shapes.left.back().is_fixed() ? Mixing::kNone : Mixing::kMixes;
  return one_output(node, {node.input(0).type.dtype, std::move(shapes.result)}, mixing);
}

// (left [.., M, K], gradient [.., M, N]) -> [.., K, N]
Inferred infer_matmul_grad_right(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 2, 2));
  if (shape_at(node, 0).size() < 2) return inner_mismatch(node);
  GP_TRY(ProductShapes shapes, product_shapes(node, transposed(shape_at(node, 0)), shape_at(node, 1)));
  const Mixing mixing = shapes.left.back().is_fixed() ? Mixing::kNone : Mixing::kMixes;
  return one_output(node, {node.input(0).type.dtype, std::move(shapes.result)}, mixing);
}

// (left [.., M, K], gradient [.., M, N]) -> [K, N]: the sum over all rows of all matrices
Inferred infer_matmul_grad_weight(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 2, 2));
  ir::Shape left = shape_at(node, 0), gradient = shape_at(node, 1);
  if (left.size() < 2 || gradient.size() < 2) return inner_mismatch(node);
  ir::Shape result = {left.back(), gradient.back()};
  left.pop_back();
  gradient.pop_back();
  if (left != gradient) return inner_mismatch(node);
  const bool sums_batch = std::ranges::any_of(left, [](ir::Dim dim) { return !dim.is_fixed(); });
  return one_output(node, {node.input(0).type.dtype, std::move(result)}, sums_batch ? Mixing::kMixes : Mixing::kNone);
}

Work matmul_grad_right_work(const NodeView& node, Samples samples) {
  const ir::Shape& left = shape_at(node, 0);
  Work work = product_work(node, samples, left[left.size() - 2]);
  work.scratch = repeated_bytes(node, samples);
  return work;
}

Work matmul_grad_weight_work(const NodeView& node, Samples samples) {
  const double width = static_cast<double>(shape_at(node, 1).back().at(samples));
  return {.flops = 2 * elements(node.input(0), samples) * width, .bytes = bytes_touched(node, samples)};
}

void emit_matmul_grad_weight(Emitter& emitter) {
  if (shape_at(emitter.node(), 0).size() == 2) return assign_pattern(emitter, "at::mm($0.t(), $1)", "ATen/ops/mm.h");
  assign_pattern(emitter, "at::mm($0.flatten(0, -2).t(), $1.flatten(0, -2))", "ATen/ops/mm.h");
}

// --- Gemm: alpha * op(A) op(B) + beta * C ---

struct GemmForm {
  bool transposes_left, transposes_right;
  double alpha, beta;
  explicit GemmForm(const ir::Attributes& attributes)
      : transposes_left(attributes.get_int("transA", 0) != 0),
        transposes_right(attributes.get_int("transB", 0) != 0),
        alpha(attributes.get_double("alpha", 1)),
        beta(attributes.get_double("beta", 1)) {}
  ir::Shape left(const NodeView& node) const {
    return transposes_left ? transposed(shape_at(node, 0)) : shape_at(node, 0);
  }
  ir::Shape right(const NodeView& node) const {
    return transposes_right ? transposed(shape_at(node, 1)) : shape_at(node, 1);
  }
};

Inferred infer_gemm(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 2, 3));
  GP_TRY_VOID(expect_same_dtype(node, {0, 1, 2}));
  GP_TRY_VOID(expect_floating(node, {0, 1}));
  if (shape_at(node, 0).size() != 2 || shape_at(node, 1).size() != 2) return inner_mismatch(node);
  const GemmForm form(node.attributes());
  const ir::Shape left = form.left(node), right = form.right(node);
  if (left[1] != right[0]) return inner_mismatch(node);
  ir::Shape result = {left[0], right[1]};
  if (node.has_input(2)) {
    GP_TRY(const ir::Shape joined, broadcast_shapes(node, result, shape_at(node, 2)));
    if (joined != result)
      return bad_model(node, text("cannot add ", shape_text(shape_at(node, 2)), " to ", shape_text(result)));
  }
  return one_output(node, {node.input(0).type.dtype, std::move(result)},
                    left[1].is_fixed() ? Mixing::kNone : Mixing::kMixes);
}

Work gemm_work(const NodeView& node, Samples samples) {
  return product_work(node, samples, GemmForm(node.attributes()).left(node)[1]);
}

void emit_gemm(Emitter& emitter) {
  const GemmForm form(emitter.node().attributes());
  const std::string left = emitter.in(0) + (form.transposes_left ? ".t()" : "");
  const std::string right = emitter.in(1) + (form.transposes_right ? ".t()" : "");
  if (emitter.node().has_input(2)) {
    const bool plain = form.alpha == 1 && form.beta == 1;
    const std::string factors = plain ? "" : text(", ", number(form.beta), ", ", number(form.alpha));
    emitter.assign(0, text("at::addmm(", emitter.in(2), ", ", left, ", ", right, factors, ")"), "ATen/ops/addmm.h");
    return;
  }
  const std::string factor = form.alpha == 1 ? "" : text(".mul(", number(form.alpha), ")");
  emitter.assign(0, text("at::mm(", left, ", ", right, ")", factor), "ATen/ops/mm.h");
}

ir::Attributes gemm_attributes(bool transposes_left, bool transposes_right, double alpha) {
  return {{"alpha", alpha}, {"transA", int64_t{transposes_left}}, {"transB", int64_t{transposes_right}}};
}

Status gemm_gradient(GradientBuilder& builder) {
  const GemmForm form(builder.forward().attributes());
  const ir::ValueId gradient = builder.output_gradient(0), left = builder.input(0), right = builder.input(1);
  const bool ta = form.transposes_left, tb = form.transposes_right;
  if (builder.wants(0)) {
    builder.set_input_gradient(
        0, ta ? builder.add_one(0, "Gemm", {right, gradient}, gemm_attributes(tb, true, form.alpha))
              : builder.add_one(0, "Gemm", {gradient, right}, gemm_attributes(false, !tb, form.alpha)));
  }
  if (builder.wants(1)) {
    builder.set_input_gradient(
        1, tb ? builder.add_one(1, "Gemm", {gradient, left}, gemm_attributes(true, ta, form.alpha))
              : builder.add_one(1, "Gemm", {left, gradient}, gemm_attributes(!ta, false, form.alpha)));
  }
  if (!builder.forward().has_input(2) || !builder.wants(2)) return Ok{};
  ir::ValueId bias = builder.reduce_to_input(2, gradient);
  if (form.beta != 1) bias = builder.add_one(2, "Scale", {bias}, {{"factor", form.beta}});
  builder.set_input_gradient(2, bias);
  return Ok{};
}

Example gemm_example(bool ta, bool tb, double alpha, double beta, ExampleInput bias) {
  return {
      .inputs = {ta ? normal({4, kB}) : normal({kB, 4}), weight(tb ? normal({3, 4}) : normal({4, 3})), std::move(bias)},
      .attributes = {{"transA", int64_t{ta}}, {"transB", int64_t{tb}}, {"alpha", alpha}, {"beta", beta}}};
}

// --- Scale: input * factor ---

void emit_scale(Emitter& emitter) {
  emitter.assign(
      0, text("at::mul(", emitter.in(0), ", ", number(emitter.node().attributes().get_double("factor", 1)), ")"),
      "ATen/ops/mul.h");
}

Status scale_gradient(GradientBuilder& builder) {
  if (!builder.wants(0)) return Ok{};
  builder.set_input_gradient(0,
                             builder.add_one(0, "Scale", {builder.output_gradient(0)}, builder.forward().attributes()));
  return Ok{};
}

std::vector<Example> matmul_examples() {
  return {{.inputs = {normal({kB, 4}), weight(normal({4, 3}))}},
          {.inputs = {normal({kB, 2, 4}), weight(normal({4, 3}))}},
          {.inputs = {normal({kB, 2, 3, 4}), normal({kB, 2, 4, 3})}},
          {.inputs = {normal({kB, 4}), normal({4, kB})}},
          {.inputs = {weight(normal({3, 4})), normal({kB, 4, 2})}},
          {.inputs = {normal({kB, 1, 3, 4}), weight(normal({2, 4, 3}))}},
          {.inputs = {normal({kB, 4}), weight(normal({4}))}},
          {.inputs = {weight(normal({4})), normal({kB, 4, 2})}}};
}

std::vector<OpDef> matmul_rows() {
  return {{.name = "MatMul",
           .precision = Precision::kLower,
           .infer = infer_matmul,
           .work = matmul_work,
           .gradient = matmul_gradient,
           .emit = emit_matmul,
           .owns_outputs = always,
           .features = FeatureAxis::kLast,
           .roles = {ParameterRole::kWeight, ParameterRole::kWeight},
           .stacks_matrices = true,
           .sample_sum = as_factor,
           .examples = matmul_examples()},
          {.name = "MatMulGradLeft",
           .infer = infer_matmul_grad_left,
           .work = matmul_work,
           .emit = [](Emitter& e) { assign_pattern(e, "at::matmul($0, $1.mT())", kMatMul); },
           .owns_outputs = always,
           .stacks_matrices = true,
           .examples = {{.inputs = {normal({kB, 2, 3}), weight(normal({4, 3}))}}}},
          {.name = "MatMulGradRight",
           .infer = infer_matmul_grad_right,
           .work = matmul_grad_right_work,
           .emit = [](Emitter& e) { assign_pattern(e, "at::matmul($0.mT(), $1)", kMatMul); },
           .owns_outputs = always,
           .stacks_matrices = true,
           .examples = {{.inputs = {normal({kB, 2, 4}), normal({kB, 2, 3})}}}},
          {.name = "MatMulGradWeight",
           .infer = infer_matmul_grad_weight,
           .work = matmul_grad_weight_work,
           .emit = emit_matmul_grad_weight,
           .owns_outputs = always,
           .examples = {{.inputs = {normal({kB, 2, 4}), normal({kB, 2, 3})}}}}};
}

std::vector<OpDef> gemm_rows() {
  return {
      {.name = "Gemm",
       .precision = Precision::kLower,
       .infer = infer_gemm,
       .work = gemm_work,
       .gradient = gemm_gradient,
       .emit = emit_gemm,
       .owns_outputs = always,
       .features = FeatureAxis::kLast,
       .roles = {ParameterRole::kWeight, ParameterRole::kWeight, ParameterRole::kBias},
       .examples = {gemm_example(false, true, 1, 1, weight(normal({3}))),
                    gemm_example(true, false, 0.5, 2, weight(normal({1, 3}))),
                    gemm_example(true, true, 0.5, 1, absent()), gemm_example(false, false, 1, 0.5, normal({kB, 3}))}},
      {.name = "Scale",
       .infer = same_as_first_float_input,
       .work = one_flop_per_element,
       .gradient = scale_gradient,
       .emit = emit_scale,
       .dependence = Dependence::kElement,
       .sample_sum = as_first_input,
       .examples = {{.inputs = {normal({kB, 3})}, .attributes = {{"factor", 0.25}}}}}};
}

}  // namespace

std::span<const OpDef> matmul_ops() {
  static const std::vector<OpDef> rows = joined({matmul_rows(), gemm_rows()});
  return rows;
}

}  // namespace graphpipe::ops
