#include "passes/separate_samples.h"

#include <algorithm>

#include "ops/op_def.h"
#include "passes/rebuild.h"
#include "passes/separate_look_ups.h"

namespace graphpipe::passes {
namespace {

using ir::Dim;
using ir::Graph;
using ir::Node;
using ir::Shape;
using ir::ValueId;

using ops::Dependence;

bool is_mixed(const Graph& graph, ValueId value) { return graph.value(value).batch == ir::BatchKind::kMixed; }
/// The unmixed value of which `value` is a mixed reshape; invalid if there is none.
ValueId unmixed_root(const Graph& graph, ValueId value) {
  if (!value.valid() || !is_mixed(graph, value) || !graph.value(value).producer.valid()) return {};
  const Node& producer = graph.node(graph.value(value).producer);
  if (ops::dependence_of(producer.op) != Dependence::kSameOrder || is_mixed(graph, producer.inputs[0])) return {};
  return producer.inputs[0];
}

/// Makes a reshape of a mixed reshape one reshape of the unmixed root, or the root itself.
Result<Replacement> compose_reshapes(const Rebuilding& step) {
  const ValueId root = unmixed_root(step.made, step.node.inputs[0]);
  if (!root.valid()) return Replacement();
  const Shape& target = step.outputs[0].type.shape;
  if (shape_of(step.made, root) == target) return Replacement({root});
  GP_TRY(const ValueId whole, append_like(step.made, step.node, "Reshape", {root}, {{"shape", target}}));
  return Replacement({whole});
}

/// Reshapes what was computed in the root's shape back to the shape of the node's output.
Result<Replacement> in_old_shape(const Rebuilding& step, ValueId computed) {
  GP_TRY(const ValueId shaped,
         append_like(step.made, step.node, "Reshape", {computed}, {{"shape", step.outputs[0].type.shape}}));
  return Replacement({shaped});
}

Result<Replacement> move_unary(const Rebuilding& step) {
  const ValueId root = unmixed_root(step.made, step.node.inputs[0]);
  if (!root.valid() || step.outputs.size() != 1) return Replacement();
  GP_TRY(const ValueId moved, append_like(step.made, step.node, step.node.op, {root}, step.node.attributes));
  return in_old_shape(step, moved);
}

/// The unmixed root of `flat`, reshaped to rows as long as those of `flat`; invalid if that is impossible. Only axes
/// after the batch axis are merged, so the samples stay separate: root [T, B, H, d] of flat [T*B, H*d] is [T, B, H*d].
Result<ValueId> row_root(const Rebuilding& step, ValueId flat) {
  const ValueId root = unmixed_root(step.made, flat);
  if (!root.valid() || shape_of(step.made, flat).empty()) return ValueId();
  Shape rows = shape_of(step.made, root);
  const Dim wanted = shape_of(step.made, flat).back();
  if (!wanted.is_fixed() || wanted.factor < 1) return ValueId();
  Dim joined = Dim::fixed(1);
  while (!rows.empty() && rows.back().is_fixed() && joined.factor < wanted.factor) {
    if (__builtin_mul_overflow(joined.factor, rows.back().factor, &joined.factor)) return ValueId();
    rows.pop_back();
  }
  if (joined.factor < 1) return ValueId();
  if (joined != wanted) {
    // The batch axis also contains heads: [T, B * heads, d] becomes [T, B, heads * d].
    if (rows.empty() || rows.back().power != 1 || wanted.factor % joined.factor != 0) return ValueId();
    const int64_t heads = wanted.factor / joined.factor;
    if (rows.back().factor % heads != 0) return ValueId();
    rows.back().factor /= heads;
  }
  rows.push_back(wanted);
  if (rows == shape_of(step.made, root)) return root;
  return append_like(step.made, step.node, "Reshape", {root}, {{"shape", std::move(rows)}});
}

/// Whether `other` is the same for every row of `flat`: a scalar, or one row.
bool broadcasts_over_rows(const Graph& graph, ValueId other, ValueId flat) {
  const Shape& shape = shape_of(graph, other);
  if (graph.value(other).batch != ir::BatchKind::kNone || shape.size() > 1) return false;
  return shape.empty() || shape[0] == Dim::fixed(1) || shape[0] == shape_of(graph, flat).back();
}

Result<Replacement> move_binary(const Rebuilding& step) {
  const ValueId roots[] = {unmixed_root(step.made, step.node.inputs[0]), unmixed_root(step.made, step.node.inputs[1])};
  std::vector<ValueId> inputs = step.node.inputs;
  if (roots[0].valid() && roots[1].valid()) {
    if (shape_of(step.made, roots[0]) != shape_of(step.made, roots[1])) return Replacement();
    if (shape_of(step.made, inputs[0]) != shape_of(step.made, inputs[1])) return Replacement();
    inputs = {roots[0], roots[1]};
  } else {
    const size_t at = roots[0].valid() ? 0 : 1;
    if (!roots[at].valid() || !broadcasts_over_rows(step.made, inputs[1 - at], inputs[at])) return Replacement();
    GP_TRY(inputs[at], row_root(step, inputs[at]));
    if (!inputs[at].valid()) return Replacement();
  }
  GP_TRY(const ValueId moved, append_like(step.made, step.node, step.node.op, std::move(inputs), step.node.attributes));
  return in_old_shape(step, moved);
}

/// Operators that work element by element.
Result<Replacement> move_elements(const Rebuilding& step) {
  switch (step.node.inputs.size()) {
    case 1:
      return move_unary(step);
    case 2:
      return move_binary(step);
    default:
      return Replacement();
  }
}

Result<Replacement> move_product(const Rebuilding& step) {
  const Node& node = step.node;
  const bool gemm = node.op == "Gemm";
  if (!unmixed_root(step.made, node.inputs[0]).valid()) return Replacement();
  ValueId weight = node.inputs[1];
  if (step.made.value(weight).batch != ir::BatchKind::kNone || shape_of(step.made, weight).size() != 2)
    return Replacement();
  const bool plain = node.attributes.get_int("transA", 0) == 0 && node.attributes.get_double("alpha", 1) == 1 &&
                     node.attributes.get_double("beta", 1) == 1;
  const bool has_bias = gemm && node.inputs.size() > 2 && node.inputs[2].valid();
  const bool row_bias = !has_bias || (shape_of(step.made, node.inputs[2]).size() <= 1 &&
                                      step.made.value(node.inputs[2]).batch == ir::BatchKind::kNone);
  if (gemm && (!plain || !row_bias)) return Replacement();
  GP_TRY(const ValueId root, row_root(step, node.inputs[0]));
  if (!root.valid()) return Replacement();
  if (gemm && node.attributes.get_int("transB", 0) != 0) {
    GP_TRY(weight, append_like(step.made, node, "Transpose", {weight}, {{"perm", std::vector<int64_t>{1, 0}}}));
  }
  GP_TRY(ValueId product, append_like(step.made, node, "MatMul", {root, weight}));
  if (has_bias) {
    GP_TRY(product, append_like(step.made, node, "Add", {product, node.inputs[2]}));
  }
  return in_old_shape(step, product);
}

/// Operators that work along the last axis, such as Softmax.
Result<Replacement> move_last_axis(const Rebuilding& step) {
  const ValueId flat = step.node.inputs[0];
  if (!unmixed_root(step.made, flat).valid()) return Replacement();
  const auto rank = static_cast<int64_t>(shape_of(step.made, flat).size());
  const int64_t axis = step.node.attributes.get_int("axis", -1);
  const bool others_are_weights = std::all_of(step.node.inputs.begin() + 1, step.node.inputs.end(), [&](ValueId input) {
    return !input.valid() || step.made.value(input).batch == ir::BatchKind::kNone;
  });
  if ((axis != -1 && axis != rank - 1) || !others_are_weights || step.outputs.size() != 1) return Replacement();
  GP_TRY(const ValueId root, row_root(step, flat));
  if (!root.valid()) return Replacement();
  ir::Attributes attributes = step.node.attributes;
  attributes.set("axis", static_cast<int64_t>(shape_of(step.made, root).size()) - 1);
  std::vector<ValueId> inputs = step.node.inputs;
  inputs[0] = root;
  GP_TRY(const ValueId moved, append_like(step.made, step.node, step.node.op, std::move(inputs), attributes));
  return in_old_shape(step, moved);
}

Result<Replacement> separate(const Rebuilding& step, AffineIndices& indices) {
  const std::string& op = step.node.op;
  if (op == "Gather" || op == "GatherND" || op == "RoiAlign") return separate_look_up(step, indices);
  if (op == "MatMul" || op == "Gemm") return move_product(step);
  switch (ops::dependence_of(op)) {
    case Dependence::kSameOrder:
      return compose_reshapes(step);
    case Dependence::kElement:
      return move_elements(step);
    case Dependence::kAlongAxis:
      return move_last_axis(step);
    case Dependence::kRepeated:
    case Dependence::kAny:
      break;
  }
  return Replacement();
}

}  // namespace

Result<Graph> separate_samples(Graph graph, const PassContext&) {
  AffineIndices indices;
  return rebuild(std::move(graph), [&](const Rebuilding& step) { return separate(step, indices); });
}

}  // namespace graphpipe::passes
