#include "passes/attach_loss.h"

#include <algorithm>
#include <span>

#include "ir/rewrite.h"
#include "passes/losses/registry.h"

namespace graphpipe::passes {
namespace {

using ir::Graph;
using ir::NodeId;
using ir::ValueId;

Result<ValueId> find_output(const Graph& graph, const ir::LossSpec& spec) {
  std::string names;
  for (const ir::Output& output : graph.outputs()) {
    if (output.name == spec.output) return output.value;
    names += text(names.empty() ? "" : ", ", quoted(output.name));
  }
  return bad_loss(spec.output, "the model has no output of this name",
                  names.empty() ? "export the model with an output" : text("choose one of: ", names));
}

void report_activation(const Graph& graph, ValueId output, const LossDef& loss, const PassContext& context) {
  const NodeId producer = graph.value(output).producer;
  if (!producer.valid()) return;
  const std::string& op = graph.node(producer).op;
  if (std::ranges::find(loss.own_activations, op) == loss.own_activations.end()) return;
  context.note({.code = Code::kBadLoss,
                .severity = Severity::kWarning,
                .origin = origin_of(graph, producer),
                .message = text("the output is already a ", op, ", and the loss applies its own"),
                .hint = "train on the logits: export the model without its last activation"});
}

// Keeps the outputs that every training step computes anyway, so that an evaluation can have them. Whether they can be
// put together from micro-batches is known only later: separate-samples may still recover a batch axis. So every such
// output with an axis that grows with the batch is kept here.
void keep_outputs_on_the_way(Graph& graph, ValueId loss) {
  const IdSet<NodeId> computed = ir::ancestors_of(graph, std::span(&loss, 1));
  std::erase_if(graph.outputs(), [&](const ir::Output& output) {
    const NodeId producer = graph.value(output.value).producer;
    return !producer.valid() || !computed.contains(producer) ||
           std::ranges::all_of(graph.value(output.value).type.shape, &ir::Dim::is_fixed);
  });
}

}  // namespace

Result<Graph> attach_loss(Graph graph, const PassContext& context) {
  const ir::LossSpec& spec = context.loss;
  if (spec.kind.empty()) return graph;
  GP_TRY_VOID(check_loss(spec));
  const LossDef* loss = find_loss(spec.kind);
  GP_TRY(const ValueId output, find_output(graph, spec));
  report_activation(graph, output, *loss, context);
  if (!ir::is_floating(graph.value(output).type.dtype))
    return bad_loss(spec.output, "a loss needs a floating-point output", "name another output");
  LossBuilder builder(std::move(graph), spec);
  GP_TRY(AttachedLoss attached, loss->attach(builder, output));
  ValueId scaled = attached.sum;
  if (attached.stated.terms.empty()) {
    const ValueId scale = builder.add_scale(builder.type(attached.sum).dtype, 0);
    GP_TRY(scaled, builder.append("Mul", {attached.sum, scale}));
  }
  graph = std::move(builder.graph());
  if (!context.forward_only) keep_outputs_on_the_way(graph, scaled);
  graph.outputs().push_back({.value = scaled, .name = ModelText("loss"), .role = ir::OutputRole::kLoss});
  graph.loss() = std::move(attached.stated);
  return graph;
}

}  // namespace graphpipe::passes
