#include "passes/gradient_builder.h"

#include <set>

namespace graphpipe::passes {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Shape;
using ir::ValueId;

NodeGradientBuilder::NodeGradientBuilder(const Graph& before, Graph& graph, NodeId forward,
                                         const IdMap<ValueId, ValueId>& gradient_of,
                                         const IdSet<ValueId>& needs_gradient)
    : before_(before),
      graph_(graph),
      id_(forward),
      view_(before, before.node(forward)),
      gradient_of_(gradient_of),
      needs_gradient_(needs_gradient),
      first_node_(graph.node_count()) {}

ValueId NodeGradientBuilder::input(size_t i) const { return view_.has_input(i) ? view_.node().inputs[i] : ValueId(); }

ValueId NodeGradientBuilder::output_gradient(size_t i) const {
  if (i >= view_.output_count() || !view_.node().outputs[i].valid()) return ValueId();
  return gradient_of_[view_.node().outputs[i]];
}

bool NodeGradientBuilder::wants(size_t i) const {
  const ops::OpDef* entry = ops::find_op(view_.node().op);
  const bool is_given = entry != nullptr && (entry->constant_inputs >> i & 1) != 0;
  return view_.has_input(i) && !is_given && needs_gradient_.contains(input(i));
}

std::vector<ValueId> NodeGradientBuilder::add(size_t for_input, std::string_view op, std::vector<ValueId> inputs,
                                              ir::Attributes attributes) {
  Node node;
  node.op = op;
  node.attributes = std::move(attributes);
  node.inputs = std::move(inputs);
  const bool is_weight_side = view_.has_input(for_input) && view_.input(for_input).batch == ir::BatchKind::kNone;
  node.phase = is_weight_side ? ir::Phase::kWeightGradient : ir::Phase::kInputGradient;
  node.serves = id_;
  node.origins = view_.node().origins;
  const Result<NodeId> added = append_node(graph_, std::move(node));
  if (added.ok()) return graph_.node(*added).outputs;
  problems_.insert(problems_.end(), added.problems().begin(), added.problems().end());
  // The entry carries on with placeholder outputs; contributions() then reports the errors.
  // No entry takes more than one output for each input or output of the forward node, or a few.
  constexpr size_t kFew = 8;
  return std::vector<ValueId>(kFew + view_.input_count() + view_.output_count(), view_.node().outputs.front());
}

ValueId NodeGradientBuilder::reduce_to_input(size_t i, ValueId gradient) {
  const Shape& to = view_.input(i).type.shape;
  const Shape from = graph_.value(gradient).type.shape;
  if (from == to || !problems_.empty()) return gradient;
  GP_CHECK(from.size() >= to.size());
  const size_t extra = from.size() - to.size();
  std::vector<int64_t> axes;
  for (size_t axis = 0; axis < from.size(); ++axis)
    if (axis < extra || (to[axis - extra] == ir::Dim::fixed(1) && from[axis] != ir::Dim::fixed(1)))
      axes.push_back(static_cast<int64_t>(axis));
  // Of axes that only the gradient has, nothing is left to reshape.
  if (axes.size() == extra) return add_one(i, "ReduceSum", {gradient}, {{"axes", axes}, {"keepdims", int64_t{0}}});
  ValueId result = gradient;
  if (!axes.empty()) result = add_one(i, "ReduceSum", {result}, {{"axes", axes}, {"keepdims", int64_t{1}}});
  if (extra > 0) result = add_one(i, "Reshape", {result}, {{"shape", to}});
  return result;
}

void NodeGradientBuilder::set_input_gradient(size_t i, ValueId gradient) {
  if (!wants(i) || !gradient.valid()) return;
  GP_CHECK(!given_.contains(i));
  given_[i] = gradient;
}

Result<std::map<size_t, ValueId>> NodeGradientBuilder::contributions() {
  std::set<ValueId> used;
  for (size_t i = 0; i < view_.input_count() && problems_.empty(); ++i) {
    if (!wants(i)) continue;
    const auto given = given_.find(i);
    const bool fits = given != given_.end() && graph_.value(given->second).type == view_.input(i).type;
    if (!fits) {
      problems_.push_back(
          {.code = Code::kUnsupportedOp,
           .origin = origin_of(before_, id_),
           .message = text("the entry of ", quoted(ModelText(view_.node().op)),
                           given == given_.end() ? " gives no gradient" : " gives a gradient of another type",
                           " for input ", i),
           .hint = "freeze what lies upstream of this input, or replace the operator"});
      break;
    }
    const NodeId producer = graph_.value(given->second).producer;
    const bool is_own = producer.valid() && producer.index() >= first_node_ && used.insert(given->second).second;
    if (!is_own) given->second = add_one(i, "Identity", {given->second});
  }
  if (!problems_.empty()) return problems_;
  return given_;
}

}  // namespace graphpipe::passes
