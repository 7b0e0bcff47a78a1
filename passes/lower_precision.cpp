#include "passes/lower_precision.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "ops/op_def.h"
#include "passes/expression.h"
#include "passes/rebuild.h"
#include "support/half_float.h"

namespace graphpipe::passes {
namespace {

using ir::DType;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;
using ops::Precision;

/// Whether the 16-bit type represents the number exactly.
bool is_exact_in(double number, DType type) { return type == DType::kFloat16 ? is_half(number) : is_bfloat(number); }

class Lowering {
 public:
  Lowering(Graph graph, DType type)
      : old_(std::move(graph)),
        type_(type),
        stands_for_(old_.value_count()),
        parts_(old_),
        param_of_(ir::params_of_values(old_)) {
    copy_leaves(old_, made_, stands_for_);
  }

  Result<Graph> run() {
    for (const NodeId id : old_.node_ids()) {
      GP_TRY_VOID(rebuild_node(old_.node(id)));
    }
    for (ir::Output output : old_.outputs()) {
      GP_TRY(output.value, in_type_of(output.value));
      made_.outputs().push_back(std::move(output));
    }
    made_.loss() = old_.loss();
    return std::move(made_);
  }

 private:
  DType old_type(ValueId old) const { return old_.value(old).type.dtype; }
  bool is_lowered(ValueId old) const { return made_.value(stands_for_[old]).type.dtype != old_type(old); }

  Result<ValueId> cast(ValueId made, DType type, const Node& reader) {
    ValueId& known = casts_[{made, type}];
    if (!known.valid()) {
      GP_TRY(known, append_like(made_, reader, "Cast", {made}, {{"to", std::string(ir::dtype_name(type))}}));
    }
    return known;
  }

  /// The value in the type that it has in the old graph: cast back if it has been lowered.
  Result<ValueId> in_type_of(ValueId old) {
    const ValueId made = stands_for_[old];
    if (!is_lowered(old)) return made;
    return cast(made, old_type(old), made_.node(made_.value(made).producer));
  }

  Result<ValueId> lowered(ValueId old, const Node& reader) {
    if (old_type(old) != DType::kFloat32 || is_lowered(old)) return stands_for_[old];
    return cast(stands_for_[old], type_, reader);
  }

  /// Whether all floating-point inputs of the node are float32 in the old graph.
  bool reads_float32_only(const Node& node) const {
    return std::ranges::all_of(node.inputs, [&](ValueId input) {
      return !input.valid() || !ir::is_floating(old_type(input)) || old_type(input) == DType::kFloat32;
    });
  }

  bool reads_lowered(const Node& node) const {
    return std::ranges::any_of(node.inputs, [&](ValueId input) { return input.valid() && is_lowered(input); });
  }

  /// Whether a float32 input takes the type of the lowered inputs next to it, instead of promoting them to float32.
  /// That holds for a number that 16 bits represent exactly (Python numbers do not promote tensors in PyTorch), and for
  /// the bias of a product, which PyTorch passes to the product as an operand.
  bool follows(const Node& node, ValueId input) const {
    if (const auto number = parts_.constant(input); number && is_one_element(input)) return is_exact_in(*number, type_);
    const ops::OpDef* entry = ops::find_op(node.op);
    if (entry == nullptr || !entry->adds_bias || !is_weight(input)) return false;
    return std::ranges::any_of(node.inputs, [&](ValueId other) { return other != input && is_product(other); });
  }

  bool is_one_element(ValueId value) const { return ir::element_count(shape_of(old_, value)) == ir::Dim::fixed(1); }

  bool is_weight(ValueId value) const {
    return param_of_[value].valid() && old_.param(param_of_[value]).kind == ir::ParamKind::kWeight;
  }

  bool is_product(ValueId value) const {
    const NodeId producer = old_.value(value).producer;
    return producer.valid() && is_lowered(value) &&
           ops::find_op(old_.node(producer).op)->precision == Precision::kLower;
  }

  bool computes_in_16_bits(const Node& node) const {
    const ops::OpDef* entry = ops::find_op(node.op);
    if (entry != nullptr && entry->keeps_float32 != nullptr && entry->keeps_float32(ops::NodeView(old_, node)))
      return false;
    if (entry == nullptr || entry->precision == Precision::kFloat32 || !reads_float32_only(node)) return false;
    if (entry->precision == Precision::kLower) return true;
    if (entry->precision == Precision::kAsFirstInput) return type_ == DType::kBFloat16 && is_lowered(node.inputs[0]);
    const bool all_follow = std::ranges::all_of(node.inputs, [&](ValueId input) {
      return !input.valid() || old_type(input) != DType::kFloat32 || is_lowered(input) || follows(node, input);
    });
    return all_follow && reads_lowered(node);
  }

  /// Makes x * c and x / c a Scale of the lowered x. Its factor is an attribute, so c is not rounded to 16 bits.
  Result<ValueId> scaled(const Node& node) {
    const ops::OpDef* entry = ops::find_op(node.op);
    if (entry == nullptr || entry->factor_of == nullptr || node.inputs.size() != 2) return ValueId();
    for (size_t i = 0; i < 2; ++i) {
      const ValueId number = node.inputs[i], x = node.inputs[1 - i];
      const std::optional<double> constant = parts_.constant(number);
      if (!constant || !std::isfinite(*constant) || *constant == 0 || !is_one_element(number) || !is_lowered(x))
        continue;
      const std::optional<double> factor = entry->factor_of(i, *constant);
      if (!factor || shape_of(old_, x) != shape_of(old_, node.outputs[0])) continue;
      return append_like(made_, node, "Scale", {stands_for_[x]}, {{"factor", *factor}});
    }
    return ValueId();
  }

  Status rebuild_node(const Node& old) {
    GP_TRY(const ValueId product, scaled(old));
    if (product.valid()) {
      stands_for_[old.outputs[0]] = product;
      return Ok{};
    }
    if (computes_in_16_bits(old)) {
      Node node = old;
      const bool as_first = ops::find_op(old.op)->precision == Precision::kAsFirstInput;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        ValueId& input = node.inputs[i];
        if (!input.valid()) continue;
        GP_TRY(input, as_first && i > 0 ? in_type_of(input) : lowered(input, old));
      }
      if (append(old, std::move(node))) return Ok{};
    }
    Node node = old;
    for (ValueId& input : node.inputs) {
      if (!input.valid()) continue;
      GP_TRY(input, in_type_of(input));
    }
    node.outputs.clear();
    GP_TRY(const NodeId id, append_node(made_, std::move(node)));
    take_outputs(old, id);
    return Ok{};
  }

  /// False if the operator is not defined for these types; it then computes in float32.
  bool append(const Node& old, Node node) {
    node.outputs.clear();
    const Result<NodeId> id = append_node(made_, std::move(node));
    if (!id.ok()) return false;
    take_outputs(old, *id);
    return true;
  }

  void take_outputs(const Node& old, NodeId made) {
    for (size_t i = 0; i < old.outputs.size(); ++i) stands_for_[old.outputs[i]] = made_.node(made).outputs[i];
  }

  const Graph old_;
  const DType type_;
  Graph made_;
  IdMap<ValueId, ValueId> stands_for_;
  const Expressions parts_;
  const IdMap<ValueId, ir::ParamId> param_of_;
  std::map<std::pair<ValueId, DType>, ValueId> casts_;
};

}  // namespace

Result<Graph> lower_precision(Graph graph, const PassContext& context) {
  if (context.precision == ir::Precision::kFloat32) return graph;
  return Lowering(std::move(graph), ir::compute_type(context.precision)).run();
}

}  // namespace graphpipe::passes
