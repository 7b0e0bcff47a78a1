#include "frontend/one_sample.h"

#include "ops/op_def.h"

namespace graphpipe::frontend {

ir::Shape with_samples(const ir::Shape& one) {
  ir::Shape shape = one;
  if (shape.empty() || shape.front() != ir::Dim::fixed(1)) shape.insert(shape.begin(), ir::Dim::batch());
  else shape.front() = ir::Dim::batch();
  return shape;
}

Result<ir::ValueId> reshape_one_sample(ir::Graph& graph, const ModelText& name, ir::ValueId value, ir::Shape shape) {
  ir::Node node{.op = "OneSample",
                .attributes = {{"shape", std::move(shape)}},
                .inputs = {value},
                .outputs = {},
                .origins = {name}};
  GP_TRY(std::vector<ir::Value> types, ops::find_op(node.op)->infer(ops::NodeView(graph, node)));
  const ir::NodeId id = graph.add_node(std::move(node), std::move(types));
  return graph.node(id).outputs.front();
}

Status give_outputs_samples(ir::Graph& graph) {
  for (ir::Output& output : graph.outputs()) {
    const ir::Shape& shape = graph.value(output.value).type.shape;
    if (shape.empty()) continue;
    GP_TRY(output.value, reshape_one_sample(graph, output.name, output.value, with_samples(shape)));
  }
  return Ok{};
}

}  // namespace graphpipe::frontend
