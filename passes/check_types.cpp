#include "passes/check_types.h"

#include "ops/op_def.h"
#include "passes/pass.h"

namespace graphpipe::passes {
namespace {

Diagnostic problem(const ir::Graph& graph, ir::NodeId id, std::string message) {
  return {.code = Code::kBadModel,
          .origin = origin_of(graph, id),
          .message = text("node n", id, " ", quoted(ModelText(graph.node(id).op)), " ", message),
          .hint = "the step before this check broke the graph; report it"};
}

bool agree(const ir::Value& stored, const ir::Value& inferred) {
  return stored.type == inferred.type && stored.batch == inferred.batch && stored.batch_axis == inferred.batch_axis;
}

}  // namespace

Status check_types(const ir::Graph& graph, ir::NodeId id) {
  const ir::Node& node = graph.node(id);
  const ops::OpDef* entry = ops::find_op(node.op);
  if (entry == nullptr || entry->infer == nullptr) return problem(graph, id, "has no entry in the op dictionary");
  GP_TRY(const std::vector<ir::Value> inferred, entry->infer(ops::NodeView(graph, node)));
  if (inferred.size() != node.outputs.size())
    return problem(graph, id, text("has ", node.outputs.size(), " outputs, inference makes ", inferred.size()));
  for (size_t i = 0; i < node.outputs.size(); ++i)
    if (!agree(graph.value(node.outputs[i]), inferred[i]))
      return problem(graph, id, text("has an output ", i, " of another type or batch kind than inference gives"));
  return Ok{};
}

}  // namespace graphpipe::passes
