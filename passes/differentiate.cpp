#include "passes/differentiate.h"

#include <algorithm>

#include "ops/op_def.h"
#include "passes/drop_dead_nodes.h"
#include "passes/gradient_builder.h"

namespace graphpipe::passes {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ParamId;
using ir::Phase;
using ir::ValueId;

/// The values that depend on a trainable parameter along a path of differentiable nodes.
IdSet<ValueId> find_values_with_gradient(const Graph& graph) {
  IdSet<ValueId> needs(graph.value_count());
  for (ParamId param : graph.param_ids())
    if (graph.param(param).trainable) needs.insert(graph.param(param).value);
  for (NodeId id : graph.node_ids()) {
    const Node& node = graph.node(id);
    const ops::OpDef* entry = ops::find_op(node.op);
    if (entry == nullptr || entry->gradient == nullptr) continue;
    const bool reached =
        std::ranges::any_of(node.inputs, [&](ValueId input) { return input.valid() && needs.contains(input); });
    if (!reached) continue;
    for (ValueId output : node.outputs)
      if (ir::is_floating(graph.value(output).type.dtype)) needs.insert(output);
  }
  return needs;
}

class Differentiator {
 public:
  explicit Differentiator(Graph graph)
      : before_(std::move(graph)),
        graph_(before_),
        needs_(find_values_with_gradient(before_)),
        gradient_of_(before_.value_count()),
        param_of_(ir::params_of_values(before_)) {}

  Result<Graph> run(ValueId loss) {
    GP_TRY_VOID(seed(loss));
    for (size_t i = before_.node_count(); i-- > 0;) {
      GP_TRY_VOID(differentiate_node(NodeId(i)));
    }
    settle_phases();
    GP_TRY_VOID(settle_shares());
    graph_.gradient_of() = gradient_of_;
    graph_.gradient_of().resize(graph_.value_count());
    return std::move(graph_);
  }

 private:
  /// The gradient of the loss with respect to itself.
  Status seed(ValueId loss) {
    const ir::TensorType& type = before_.value(loss).type;
    Node one;
    one.op = "Full";
    one.attributes = {{"shape", type.shape}, {"to", std::string(ir::dtype_name(type.dtype))}, {"value", 1.0}};
    one.phase = Phase::kInputGradient;
    one.serves = before_.value(loss).producer;
    GP_TRY(const NodeId id, append_node(graph_, std::move(one)));
    gradient_of_[loss] = graph_.node(id).outputs.front();
    return Ok{};
  }

  Status differentiate_node(NodeId id) {
    const Node& node = before_.node(id);
    const bool has_gradient = std::ranges::any_of(
        node.outputs, [&](ValueId output) { return needs_.contains(output) && gradient_of_[output].valid(); });
    if (!has_gradient) return Ok{};
    NodeGradientBuilder builder(before_, graph_, id, gradient_of_, needs_);
    GP_TRY_VOID(ops::find_op(node.op)->gradient(builder));
    GP_TRY(const auto contributions, builder.contributions());
    for (const auto& [position, gradient] : contributions) {
      GP_TRY_VOID(add_contribution(node.inputs[position], gradient));
    }
    return Ok{};
  }

  Status add_contribution(ValueId value, ValueId gradient) {
    if (param_of_[value].valid()) {
      graph_.gradient_shares().push_back({param_of_[value], gradient});
      return Ok{};
    }
    if (!gradient_of_[value].valid()) {
      gradient_of_[value] = gradient;
      return Ok{};
    }
    Node sum;
    sum.op = "Add";
    sum.inputs = {gradient_of_[value], gradient};
    sum.phase = before_.value(value).batch == ir::BatchKind::kNone ? Phase::kWeightGradient : Phase::kInputGradient;
    sum.serves = before_.value(value).producer;
    sum.sums_gradient_of = value;
    sum.origins = before_.node(sum.serves).origins;
    GP_TRY(const NodeId id, append_node(graph_, std::move(sum)));
    gradient_of_[value] = graph_.node(id).outputs.front();
    return Ok{};
  }

  /// Moves every gradient node that an input gradient depends on to phase I, whichever phase its entry gave it.
  void settle_phases() {
    IdSet<ValueId> read_by_input_gradient(graph_.value_count());
    for (size_t i = graph_.node_count(); i-- > before_.node_count();) {
      Node& node = graph_.node(NodeId(i));
      for (ValueId output : node.outputs)
        if (read_by_input_gradient.contains(output)) node.phase = Phase::kInputGradient;
      if (node.phase != Phase::kInputGradient) continue;
      for (ValueId input : node.inputs)
        if (input.valid()) read_by_input_gradient.insert(input);
    }
  }

  /// Makes every share the output of a W node, with an Identity where needed, and sorts the shares in node order.
  Status settle_shares() {
    for (ir::GradientShare& share : graph_.gradient_shares()) {
      const NodeId producer = graph_.value(share.value).producer;
      if (graph_.node(producer).phase == Phase::kWeightGradient) continue;
      Node pass_on;
      pass_on.op = "Identity";
      pass_on.inputs = {share.value};
      pass_on.phase = Phase::kWeightGradient;
      pass_on.serves = graph_.node(producer).serves;
      pass_on.origins = graph_.node(producer).origins;
      GP_TRY(const NodeId id, append_node(graph_, std::move(pass_on)));
      share.value = graph_.node(id).outputs.front();
    }
    std::ranges::sort(graph_.gradient_shares(), {}, [](const ir::GradientShare& share) { return share.value; });
    return Ok{};
  }

  const Graph before_;
  Graph graph_;
  const IdSet<ValueId> needs_;
  IdMap<ValueId, ValueId> gradient_of_;
  const IdMap<ValueId, ParamId> param_of_;
};

/// Freezes trainable parameters without a share: they would never change, and PyTorch leaves them alone too.
void freeze_unreached(Graph& graph, const PassContext& context) {
  IdSet<ParamId> reached(graph.param_count());
  for (const ir::GradientShare& share : graph.gradient_shares()) reached.insert(share.param);
  for (ParamId id : graph.param_ids()) {
    ir::Param& param = graph.param(id);
    if (!param.trainable || reached.contains(id)) continue;
    param.trainable = param.gradient_by_rows = false;
    context.note({.code = Code::kUntrainable,
                  .severity = Severity::kWarning,
                  .origin = param.name,
                  .message = "no gradient of the loss reaches this parameter; it stays as it is",
                  .hint = "freeze it to say so, or train on an output that depends on it"});
  }
}

Diagnostic untrainable(std::string message, std::string hint) {
  return {.code = Code::kUntrainable, .origin = {}, .message = std::move(message), .hint = std::move(hint)};
}

/// Why no gradient of the loss reaches a parameter: the first operator without a gradient between them, or no
/// dependence.
Diagnostic nothing_reached(const Graph& graph, ValueId loss) {
  IdSet<ValueId> behind(graph.value_count());  // what the loss depends on
  behind.insert(loss);
  for (size_t i = graph.node_count(); i-- > 0;) {
    const Node& node = graph.node(NodeId(i));
    if (std::ranges::none_of(node.outputs, [&](ValueId output) { return behind.contains(output); })) continue;
    for (ValueId input : node.inputs)
      if (input.valid()) behind.insert(input);
  }
  const IdSet<ValueId> needs = find_values_with_gradient(graph);
  for (NodeId id : graph.node_ids()) {
    const Node& node = graph.node(id);
    const auto has_gradient = [&](ValueId value) { return value.valid() && needs.contains(value); };
    if (std::ranges::none_of(node.inputs, has_gradient) || std::ranges::any_of(node.outputs, has_gradient)) continue;
    if (std::ranges::none_of(node.outputs, [&](ValueId output) { return behind.contains(output); })) continue;
    Diagnostic problem = untrainable(
        text("no gradient of the loss passes through this ", node.op, ", behind which the trainable parameters lie"),
        "name an output before it, or replace the operator by one that has a gradient");
    problem.origin = origin_of(graph, id);
    return problem;
  }
  return untrainable("the loss does not depend on any trainable parameter", "name an output that depends on one");
}

}  // namespace

Result<Graph> differentiate(Graph graph, const PassContext& context) {
  if (context.forward_only) {
    for (ParamId id : graph.param_ids()) {
      graph.param(id).trainable = false;
      graph.param(id).gradient_by_rows = false;
    }
    return graph;
  }
  const auto loss = std::ranges::find(graph.outputs(), ir::OutputRole::kLoss, &ir::Output::role);
  if (loss == graph.outputs().end()) return graph;
  const ValueId loss_value = loss->value;
  bool any = false;
  for (ParamId param : graph.param_ids()) any |= graph.param(param).trainable;
  if (!any)
    return untrainable("no parameter of the model is trainable", "free one with --parameters, or --freeze less");
  GP_TRY(Graph result, Differentiator(std::move(graph)).run(loss_value));
  if (result.gradient_shares().empty()) return nothing_reached(result, loss_value);
  freeze_unreached(result, context);
  return drop_dead_nodes(std::move(result), context);
}

}  // namespace graphpipe::passes
