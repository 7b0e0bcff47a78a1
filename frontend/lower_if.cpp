// If. A branch that is decided by the file is lowered in place. If data decide, both are lowered, and a Where selects
// one of each pair of results.

#include "frontend/chosen.h"

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

Status bind_constants(NodeContext& context, const GraphBody& body) {
  Lowering& lowering = context.lowering();
  for (const Tensor& tensor : body.initializers) {
    GP_TRY(Binding binding, lowering.tensor_binding(tensor, node_label(context.node())));
    lowering.bind(tensor.name, std::move(binding));
  }
  return Ok{};
}

/// The results of a branch; nothing if one of its nodes failed, which has been reported.
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

/// Of the taken branch and the other; nothing if a node of one failed.
Result<std::vector<std::vector<ValueId>>> values_of_both(NodeContext& context, ValueId condition) {
  std::vector<std::vector<ValueId>> results;
  for (const bool taken : {true, false}) {
    GP_TRY(const GraphBody* body, branch_of(context, taken));
    const size_t first = context.lowering().graph().node_count();
    GP_TRY_VOID(bind_constants(context, *body));
    Gates gates(context, condition, taken);
    GP_TRY_VOID(gates.close(*body));
    context.lowering().run(body->nodes);
    gates.open();
    GP_TRY(std::optional<std::vector<ValueId>> values, values_of(context, *body));
    if (!values) return std::vector<std::vector<ValueId>>();
    GP_TRY_VOID(expect_no_effect(context, first));
    results.push_back(std::move(*values));
    // The other branch may reuse its names.
    context.lowering().forget(body->nodes);
  }
  return results;
}

Status choose_by_data(NodeContext& context) {
  GP_TRY(const ValueId condition, context.value(0));
  GP_TRY(const auto results, values_of_both(context, condition));
  if (results.empty()) context.lowering().poison(context.node());
  for (size_t i = 0; i < context.node().outputs.size() && !results.empty(); ++i) {
    GP_TRY(const ValueId value, chosen(context, condition, results[0][i], results[1][i]));
    context.bind(i, value);
  }
  return Ok{};
}

Status lower_if(NodeContext& context) {
  const Known* condition = context.known(0);
  // A comparison of a weight is decided by the file alone only while it is not trained.
  if (condition == nullptr || condition->elements.empty() || context.input(0).leaf) return choose_by_data(context);
  GP_TRY(const GraphBody* body, branch_of(context, condition->element(0).whole != 0));
  // Another body may have used the same names; nothing that was known of them holds here.
  context.lowering().forget(body->nodes);
  GP_TRY_VOID(bind_constants(context, *body));
  context.lowering().run(body->nodes);
  for (size_t i = 0; i < context.node().outputs.size(); ++i)
    if (context.has_output(i)) context.lowering().bind_alias(context.node().outputs[i], body->outputs[i].name);
  return Ok{};
}

}  // namespace

std::vector<HandlerEntry> branch_handlers() { return {{"If", lower_if}}; }

}  // namespace graphpipe::frontend
