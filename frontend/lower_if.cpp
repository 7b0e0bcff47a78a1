// If. The branch that the file decides for is lowered in its place. Where data decide, both are, and a Where takes one
// of each pair of results: every value is that of the branch taken.

#include <algorithm>

#include "frontend/node_context.h"
#include "ops/op_def.h"

namespace graphpipe::frontend {
namespace {

using ir::ValueId;

Result<const GraphBody*> branch_of(const NodeContext& context, bool taken) {
  const Attribute* branch = context.node().find(taken ? "then_branch" : "else_branch");
  if (branch == nullptr || branch->graph.empty())
    return context.problem(Code::kBadModel, "lacks a branch", "export the model again");
  const GraphBody& body = branch->graph[0];
  if (!body.inputs.empty())
    return context.problem(Code::kBadModel, "has a branch with inputs", "let the branch read what is outside it");
  if (body.outputs.size() < context.node().outputs.size())
    return context.problem(Code::kBadModel, "has fewer results in a branch than outputs", "export the model again");
  return &body;
}

Status lower_branch(NodeContext& context, const GraphBody& body) {
  Lowering& lowering = context.lowering();
  for (const Tensor& tensor : body.initializers) {
    GP_TRY(Binding binding, lowering.tensor_binding(tensor, node_label(context.node())));
    lowering.bind(tensor.name, std::move(binding));
  }
  lowering.run(body.nodes);
  return Ok{};
}

/// The results of a branch; nothing where one of its nodes failed, which has been reported.
Result<std::optional<std::vector<ValueId>>> values_of(NodeContext& context, const GraphBody& body) {
  Lowering& lowering = context.lowering();
  std::vector<ValueId> values;
  for (size_t i = 0; i < context.node().outputs.size(); ++i) {
    Binding* binding = lowering.find(body.outputs[i].name);
    if (binding == nullptr || binding->poisoned) return std::optional<std::vector<ValueId>>();
    GP_TRY(const ValueId value, lowering.value_of(*binding, context.node()));
    values.push_back(value);
  }
  return std::optional(std::move(values));
}

/// Of the branch that is taken and the other; nothing where a node of one failed.
Result<std::vector<std::vector<ValueId>>> values_of_both(NodeContext& context) {
  std::vector<std::vector<ValueId>> results;
  for (const bool taken : {true, false}) {
    GP_TRY(const GraphBody* body, branch_of(context, taken));
    const size_t first = context.lowering().graph().node_count();
    GP_TRY_VOID(lower_branch(context, *body));
    GP_TRY(std::optional<std::vector<ValueId>> values, values_of(context, *body));
    if (!values) return std::vector<std::vector<ValueId>>();
    GP_TRY_VOID(expect_no_effect(context, first));
    results.push_back(std::move(*values));
    // The other branch may use its names again.
    context.lowering().forget(body->nodes);
  }
  return results;
}

Status choose_by_data(NodeContext& context) {
  GP_TRY(const ValueId condition, context.value(0));
  GP_TRY(const auto results, values_of_both(context));
  if (results.empty()) context.lowering().poison(context.node());
  for (size_t i = 0; i < context.node().outputs.size() && !results.empty(); ++i) {
    GP_TRY(const ValueId value, chosen(context, condition, results[0][i], results[1][i]));
    context.bind(i, value);
  }
  return Ok{};
}

Status lower_if(NodeContext& context) {
  const Known* condition = context.known(0);
  if (condition == nullptr || condition->elements.empty()) return choose_by_data(context);
  GP_TRY(const GraphBody* body, branch_of(context, condition->element(0).whole != 0));
  GP_TRY_VOID(lower_branch(context, *body));
  for (size_t i = 0; i < context.node().outputs.size(); ++i)
    if (context.has_output(i)) context.lowering().bind_alias(context.node().outputs[i], body->outputs[i].name);
  return Ok{};
}

}  // namespace

Result<ValueId> chosen(NodeContext& context, ValueId condition, ValueId yes, ValueId no) {
  if (yes == no) return yes;
  const ir::Graph& graph = context.lowering().graph();
  const ir::TensorType one = graph.value(yes).type, other = graph.value(no).type;
  const ir::Shape shape = graph.value(condition).type.shape;
  const bool is_one_number = std::ranges::all_of(shape, [](ir::Dim dim) { return dim == ir::Dim::fixed(1); });
  if (one != other || !is_one_number)
    return context.problem(Code::kUnsupportedOp,
                           is_one_number ? "its condition depends on data, and its results have another type or shape "
                                           "where it is true than where it is not"
                                         : "its condition is no single number",
                           "give both the same type and shape, or export the model for one case");
  if (!shape.empty()) {
    GP_TRY(const auto scalar, context.emit("Reshape", {condition}, {{"shape", ir::Shape()}}));
    condition = scalar[0];
  }
  GP_TRY(const auto made, context.emit("Where", {condition, yes, no}, {}));
  return made[0];
}

Status expect_no_effect(NodeContext& context, size_t first) {
  const ir::Graph& graph = context.lowering().graph();
  for (size_t i = first; i < graph.node_count(); ++i) {
    const ir::Node& node = graph.node(ir::NodeId(i));
    const ops::OpDef* entry = ops::find_op(node.op);
    if (entry->updates_inputs == nullptr || entry->updates_inputs(ops::NodeView(graph, node)) == 0) continue;
    return context.problem(Code::kUnsupportedOp,
                           text("its condition depends on data, and its node ",
                                quoted(node.origins.empty() ? ModelText(node.op) : node.origins.front()),
                                " would update statistics whether it is true or not"),
                           "take that node out of it, or use --batchnorm eval");
  }
  return Ok{};
}

std::vector<HandlerEntry> branch_handlers() { return {{"If", lower_if}}; }

}  // namespace graphpipe::frontend
