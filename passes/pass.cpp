#include "passes/pass.h"

#include <utility>

#include "ops/op_def.h"

namespace graphpipe::passes {

using ir::Graph;
using ir::Node;
using ir::NodeId;

ModelText origin_of(const Graph& graph, NodeId node) {
  const std::vector<ModelText>& origins = graph.node(node).origins;
  return origins.empty() ? ModelText() : origins.front();
}

Result<NodeId> append_node(Graph& graph, Node node) {
  const ops::OpDef* entry = ops::find_op(node.op);
  if (entry == nullptr || entry->infer == nullptr)
    return Diagnostic{.code = Code::kUnsupportedOp,
                      .origin = node.origins.empty() ? ModelText() : node.origins.front(),
                      .message = text("the op dictionary has no entry for ", quoted(ModelText(node.op))),
                      .hint = "replace the operator, or add an entry to ops/"};
  GP_TRY(std::vector<ir::Value> outputs, entry->infer(ops::NodeView(graph, node)));
  return graph.add_node(std::move(node), std::move(outputs));
}

}  // namespace graphpipe::passes
