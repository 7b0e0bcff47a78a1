#pragma once
// Infers one node outside a model: inputs are given by type, batch kinds follow from their dims.

#include <string>
#include <utility>
#include <vector>

#include "ir/graph.h"
#include "ops/op_def.h"

namespace graphpipe::testing {

/// A graph input for each type; a dim with the batch makes it a batched value.
struct OneNode {
  ir::Graph graph;
  ir::Node node;

  OneNode(std::string op, const std::vector<ir::TensorType>& inputs, ir::Attributes attributes = {}) {
    node.op = std::move(op);
    node.attributes = std::move(attributes);
    node.origins.push_back(ModelText("/layer/node"));
    for (const ir::TensorType& type : inputs) {
      ir::Value value{.type = type};
      for (size_t axis = 0; axis < type.shape.size(); ++axis) {
        if (type.shape[axis].is_fixed()) continue;
        value.batch = value.batch == ir::BatchKind::kNone ? ir::BatchKind::kAxis : ir::BatchKind::kMixed;
        value.batch_axis = value.batch == ir::BatchKind::kAxis ? static_cast<int>(axis) : -1;
      }
      node.inputs.push_back(graph.add_input({.name = ModelText("x")}, value));
    }
  }

  Result<std::vector<ir::Value>> infer() const {
    const ops::OpDef* def = ops::find_op(node.op);
    GP_CHECK(def != nullptr);
    return def->infer(ops::NodeView(graph, node));
  }
};

inline ir::TensorType f32(ir::Shape shape) { return {ir::DType::kFloat32, std::move(shape)}; }
inline ir::TensorType i64(ir::Shape shape) { return {ir::DType::kInt64, std::move(shape)}; }
inline ir::TensorType boolean(ir::Shape shape) { return {ir::DType::kBool, std::move(shape)}; }
inline ir::Dim fixed(int64_t size) { return ir::Dim::fixed(size); }

}  // namespace graphpipe::testing
