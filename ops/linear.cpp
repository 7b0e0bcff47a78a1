// Linear(x, weight, bias): rows times a weight matrix, plus a bias; created by passes/fuse_linear from what exporters
// write as two or three nodes. The runtime chooses the kernel (runtime/kernels/linear.h).

#include "ops/emit_helpers.h"
#include "ops/example_helpers.h"
#include "ops/families.h"
#include "ops/infer_helpers.h"

namespace graphpipe::ops {
namespace {

constexpr std::string_view kLinear = "runtime/kernels/linear.h";

/// Attribute transB, as in Gemm: the weight is [N, K] instead of [K, N].
bool has_transposed_weight(const NodeView& node) { return node.attributes().get_int("transB", 0) != 0; }

/// (x [.., K], weight) -> [.., N], or with `back` (gradient [.., N], weight) -> [.., K].
Inferred rows_times_weight(const NodeView& node, bool back) {
  GP_TRY_VOID(expect_same_dtype(node, {0, 1, 2}));
  GP_TRY_VOID(expect_floating(node, {0, 1}));
  ir::TensorType type = node.input(0).type;
  const ir::Shape& weight = node.input(1).type.shape;
  if (type.shape.size() < 2 || weight.size() != 2)
    return bad_model(node, text("cannot multiply ", shape_text(type.shape), " and ", shape_text(weight)));
  const size_t inner = has_transposed_weight(node) != back ? 1 : 0;
  if (!type.shape.back().is_fixed() || type.shape.back() != weight[inner])
    return bad_model(node, text("cannot multiply ", shape_text(type.shape), " and ", shape_text(weight)));
  type.shape.back() = weight[1 - inner];
  if (node.has_input(2) && node.input(2).type.shape != ir::Shape{type.shape.back()})
    return bad_model(
        node, text("cannot add ", shape_text(node.input(2).type.shape), " to the rows of ", shape_text(type.shape)));
  return one_output(node, std::move(type));
}

Inferred infer_linear(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 2, 3));
  return rows_times_weight(node, false);
}

Inferred infer_linear_grad_input(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 2, 2));
  return rows_times_weight(node, true);
}

/// (x [.., K], gradient [.., N]) -> the shape of the weight: the sum over all rows.
Inferred infer_linear_grad_weight(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 2, 2));
  ir::Shape x = node.input(0).type.shape, gradient = node.input(1).type.shape;
  if (x.size() < 2 || x.size() != gradient.size()) return bad_model(node, "needs rows of one rank");
  ir::Shape weight = {x.back(), gradient.back()};
  if (has_transposed_weight(node)) std::swap(weight[0], weight[1]);
  x.pop_back();
  gradient.pop_back();
  if (x != gradient) return bad_model(node, "needs as many rows of one as of the other");
  return one_output(node, {node.input(0).type.dtype, std::move(weight)}, Mixing::kMixes);
}

/// The number of rows: the product of all axes but the last.
int64_t rows_of(const ir::Shape& shape, Samples samples) {
  int64_t rows = 1;
  for (size_t axis = 0; axis + 1 < shape.size(); ++axis) rows *= shape[axis].at(samples);
  return rows;
}

/// Two flops for each element of the input and each column that it is multiplied with.
Work rows_product_work(const NodeView& node, Samples samples, double columns) {
  return {.flops = 2 * elements(node.input(0), samples) * columns, .bytes = bytes_touched(node, samples)};
}
Work linear_work(const NodeView& node, Samples samples) {
  return rows_product_work(node, samples, static_cast<double>(node.output(0).type.shape.back().factor));
}
Work linear_grad_weight_work(const NodeView& node, Samples samples) {
  return rows_product_work(node, samples, static_cast<double>(node.input(1).type.shape.back().factor));
}

/// The product that runtime/kernels/linear.cpp computes.
wire::Product linear_product(const NodeView& node, Samples samples) {
  const ir::Shape& x = node.input(0).type.shape;
  const int64_t inner = x.back().at(samples), columns = node.output(0).type.shape.back().at(samples);
  return {rows_of(x, samples), inner, columns, false, has_transposed_weight(node)};
}
wire::Product linear_grad_input_product(const NodeView& node, Samples samples) {
  wire::Product product = linear_product(node, samples);
  product.right_turned = !product.right_turned;
  return product;
}
wire::Product linear_grad_weight_product(const NodeView& node, Samples samples) {
  const ir::Shape& weight = node.output(0).type.shape;
  return {weight[0].at(samples), rows_of(node.input(0).type.shape, samples), weight[1].at(samples), true, false};
}

Status linear_gradient(GradientBuilder& builder) {
  const ir::Attributes& attributes = builder.forward().attributes();
  const ir::ValueId gradient = builder.output_gradient(0);
  if (builder.wants(0)) {
    builder.set_input_gradient(0, builder.add_one(0, "LinearGradInput", {gradient, builder.input(1)}, attributes));
  }
  if (builder.wants(1)) {
    builder.set_input_gradient(1, builder.add_one(1, "LinearGradWeight", {builder.input(0), gradient}, attributes));
  }
  if (builder.forward().has_input(2) && builder.wants(2))
    builder.set_input_gradient(2, builder.reduce_to_input(2, gradient));
  return Ok{};
}

void emit_linear_call(Emitter& emitter, std::string_view function) {
  std::string arguments = filled_in(emitter, "$0, $1");
  if (function == "linear") arguments += ", " + (emitter.node().has_input(2) ? emitter.in(2) : "{}");
  emitter.assign(
      0,
      text("graphpipe::runtime::", function, "(", arguments, ", ", boolean(has_transposed_weight(emitter.node())), ")"),
      kLinear);
}
void emit_linear(Emitter& emitter) { emit_linear_call(emitter, "linear"); }
void emit_linear_grad_input(Emitter& emitter) { emit_linear_call(emitter, "linear_input_gradient"); }
void emit_linear_grad_weight(Emitter& emitter) { emit_linear_call(emitter, "linear_weight_gradient"); }
void accumulate_linear_grad_weight(Emitter& emitter, std::string_view place) {
  emitter.statement(text("graphpipe::runtime::add_linear_weight_gradient(", place, ", ", filled_in(emitter, "$0, $1"),
                         ", ", boolean(has_transposed_weight(emitter.node())), ")"),
                    kLinear);
}

ir::Attributes transposed_weight(bool has_transposed_weight) { return {{"transB", int64_t{has_transposed_weight}}}; }

}  // namespace

std::span<const OpDef> linear_ops() {
  static const std::vector<OpDef> rows = {
      {.name = "Linear",
       .precision = Precision::kLower,
       .infer = infer_linear,
       .work = linear_work,
       .product = linear_product,
       .gradient = linear_gradient,
       .emit = emit_linear,
       .owns_outputs = always,
       .features = FeatureAxis::kLast,
       .read_as_rows = {0},
       .examples = {{.inputs = {normal({kB, 4}), weight(normal({3, 4})), weight(normal({3}))},
                     .attributes = transposed_weight(true)},
                    {.inputs = {normal({kB, 2, 4}), weight(normal({4, 3})), weight(normal({3}))},
                     .attributes = transposed_weight(false)},
                    {.inputs = {normal({kB, 2, 3, 4}), weight(normal({5, 4}))}, .attributes = transposed_weight(true)},
                    {.inputs = {normal({2, kB, 4}), weight(normal({4, 5}))}, .attributes = transposed_weight(false)}}},
      {.name = "LinearGradInput",
       .infer = infer_linear_grad_input,
       .work = linear_work,
       .product = linear_grad_input_product,
       .emit = emit_linear_grad_input,
       .owns_outputs = always,
       .read_as_rows = {0},
       .examples = {{.inputs = {normal({kB, 2, 3}), weight(normal({3, 4}))}, .attributes = transposed_weight(true)},
                    {.inputs = {normal({kB, 3}), weight(normal({4, 3}))}, .attributes = transposed_weight(false)}}},
      {.name = "LinearGradWeight",
       .infer = infer_linear_grad_weight,
       .work = linear_grad_weight_work,
       .product = linear_grad_weight_product,
       .emit = emit_linear_grad_weight,
       .owns_outputs = always,
       .accumulate = accumulate_linear_grad_weight,
       .read_as_rows = {0, 1},
       .examples = {{.inputs = {normal({kB, 2, 4}), normal({kB, 2, 3})}, .attributes = transposed_weight(true)},
                    {.inputs = {normal({kB, 4}), normal({kB, 3})}, .attributes = transposed_weight(false)}}}};
  return rows;
}

}  // namespace graphpipe::ops
