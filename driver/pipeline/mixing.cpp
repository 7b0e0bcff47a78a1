#include "driver/pipeline/mixing.h"

#include <algorithm>

#include "ops/op_def.h"

namespace graphpipe::driver {
namespace {

// The node itself mixes, not only what it reads.
bool starts_mixing(const ir::Graph& graph, const ir::Node& node) {
  const ops::OpDef* row = ops::find_op(node.op);
  if (row != nullptr && row->mixes_samples != nullptr && row->mixes_samples(ops::NodeView(graph, node))) return true;
  const auto is = [&](ir::ValueId id, ir::BatchKind kind) { return id.valid() && graph.value(id).batch == kind; };
  return std::ranges::any_of(node.inputs, [&](ir::ValueId id) { return is(id, ir::BatchKind::kAxis); }) &&
         std::ranges::any_of(node.outputs, [&](ir::ValueId id) { return is(id, ir::BatchKind::kMixed); });
}

}  // namespace

Diagnostics mixing_notes(const ir::Graph& graph, const ir::PlanGraph& priced) {
  Diagnostics notes;
  for (const ir::PlanNode& plan_node : priced.nodes) {
    const ir::Node& node = graph.node(plan_node.source);
    if (!plan_node.mixes_samples || !starts_mixing(graph, node)) continue;
    notes.push_back({.code = Code::kMixesSamples,
                     .severity = Severity::kNote,
                     .origin = plan_node.label,
                     .message = node.op + " works on the samples of one micro-batch together",
                     .hint = "its result depends on --micro-batch, and its stage has one replica"});
  }
  return notes;
}

}  // namespace graphpipe::driver
