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
  const ops::OpDef* row = ops::find_op(node.op);
  if (row == nullptr || row->infer == nullptr)
    return Diagnostic{.code = Code::kUnsupportedOp,
                      .origin = node.origins.empty() ? ModelText() : node.origins.front(),
                      .message = text("the dictionary has no row for ", quoted(ModelText(node.op))),
                      .hint = "replace the operator, or add a row to ops/"};
  GP_TRY(std::vector<ir::Value> outputs, row->infer(ops::NodeView(graph, node)));
  return graph.add_node(std::move(node), std::move(outputs));
}

}  // namespace graphpipe::passes
