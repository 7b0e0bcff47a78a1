#pragma once
// Small operator graphs made of real rows, and the plans that tests need of them: for passes and code generation.

#include <string>
#include <utility>
#include <vector>

#include "ir/graph.h"
#include "ir/plan_graph.h"
#include "ir/stage_graph.h"
#include "ops/op_def.h"
#include "passes/pipeline.h"

namespace graphpipe::tests {

/// Builds a graph node by node; types come from the dictionary.
class GraphMaker {
 public:
  explicit GraphMaker(ir::DType dtype = ir::DType::kFloat32) : dtype_(dtype) {}

  ir::ValueId input(const std::string& name, ir::Shape shape) { return typed_input(name, dtype_, std::move(shape)); }
  ir::ValueId typed_input(const std::string& name, ir::DType dtype, ir::Shape shape) {
    return graph.add_input({.name = ModelText(name)}, leaf(dtype, std::move(shape)));
  }
  ir::ValueId weight(const std::string& name, ir::Shape shape, bool trainable = true) {
    ir::Param param;
    param.name = ModelText(name);
    param.trainable = trainable;
    param.data = ir::FilledData{0.5};
    return graph.param(graph.add_param(param, leaf(dtype_, std::move(shape)))).value;
  }
  ir::ValueId node(const std::string& op, std::vector<ir::ValueId> inputs, ir::Attributes attributes = {}) {
    ir::Node made;
    made.op = op;
    made.inputs = std::move(inputs);
    made.attributes = std::move(attributes);
    made.origins = {ModelText("/" + op + "_" + std::to_string(graph.node_count()))};
    const ops::OpDef* row = ops::find_op(op);
    GP_CHECK(row != nullptr);
    auto outputs = row->infer(ops::NodeView(graph, made));
    GP_CHECK(outputs.ok());
    const ir::NodeId id = graph.add_node(std::move(made), std::move(outputs).value());
    return graph.node(id).outputs.front();
  }
  void output(ir::ValueId value, const std::string& name) {
    graph.outputs().push_back({.value = value, .name = ModelText(name)});
  }

  ir::Graph graph;

 private:
  static ir::Value leaf(ir::DType dtype, ir::Shape shape) {
    ir::Value value{.type = {dtype, std::move(shape)}};
    for (size_t axis = 0; axis < value.type.shape.size(); ++axis) {
      if (value.type.shape[axis].is_fixed()) continue;
      value.batch = ir::BatchKind::kAxis;
      value.batch_axis = static_cast<int>(axis);
    }
    return value;
  }
  ir::DType dtype_;
};

inline ir::Dim batch() { return ir::Dim::batch(); }
inline ir::Dim size(int64_t n) { return ir::Dim::fixed(n); }

/// x[B,4] -> 8 -> 3 logits, with biases. Five nodes.
inline ir::Graph mlp(ir::DType dtype = ir::DType::kFloat32, bool first_layer_trainable = true) {
  GraphMaker make(dtype);
  const auto x = make.input("x", {batch(), size(4)});
  const auto w1 = make.weight("fc1.weight", {size(4), size(8)}, first_layer_trainable);
  const auto b1 = make.weight("fc1.bias", {size(8)}, first_layer_trainable);
  const auto w2 = make.weight("fc2.weight", {size(8), size(3)});
  const auto b2 = make.weight("fc2.bias", {size(3)});
  const auto hidden = make.node("Relu", {make.node("Add", {make.node("MatMul", {x, w1}), b1})});
  make.output(make.node("Add", {make.node("MatMul", {hidden, w2}), b2}), "logits");
  return std::move(make.graph);
}

/// A layer whose matrix is a sum of two that are trained: one gradient for both.
inline ir::Graph summed_weights(ir::DType dtype = ir::DType::kFloat32) {
  GraphMaker make(dtype);
  const auto x = make.input("x", {batch(), size(4)});
  const auto base = make.weight("base", {size(4), size(3)});
  const auto change = make.weight("change", {size(4), size(3)});
  make.output(make.node("MatMul", {x, make.node("Add", {base, change})}), "y");
  return std::move(make.graph);
}

/// Fan-out of three readers, a residual that passes its gradient on, a weight used twice (once transposed), and a
/// learned scale that passes through an operator without samples.
inline ir::Graph branches(ir::DType dtype = ir::DType::kFloat32) {
  GraphMaker make(dtype);
  const auto x = make.input("x", {batch(), size(4)});
  const auto w = make.weight("tied", {size(4), size(4)});
  const auto log_scale = make.weight("log_scale", {});
  const auto scale = make.node("Exp", {log_scale});
  const auto h = make.node("MatMul", {x, w});
  const auto left = make.node("Mul", {make.node("Tanh", {h}), scale});
  const auto right = make.node("Sigmoid", {h});
  const auto joined = make.node("Add", {make.node("Mul", {left, right}), h});
  const auto back = make.node("Transpose", {w}, {{"perm", std::vector<int64_t>{1, 0}}});
  make.output(make.node("Mul", {make.node("MatMul", {joined, back}), scale}), "y");
  return std::move(make.graph);
}

/// Two layers, and behind them the product of a vector and a matrix that are trained: its gradient reads the vector by
/// another shape. Four stages can share the rest.
inline ir::Graph product_of_weights(ir::DType dtype = ir::DType::kFloat32) {
  GraphMaker make(dtype);
  const auto x = make.input("x", {batch(), size(4)});
  const auto hidden = make.node("Tanh", {make.node("MatMul", {x, make.weight("first", {size(4), size(4)})})});
  const auto shift = make.node("MatMul", {make.weight("vector", {size(3)}), make.weight("matrix", {size(3), size(4)})});
  make.output(make.node("Mul", {make.node("MatMul", {hidden, make.weight("second", {size(4), size(4)})}), shift}), "y");
  return std::move(make.graph);
}

/// Forward nodes with samples, the values between them, unit prices.
inline ir::PlanGraph plan_of(const ir::Graph& graph, int64_t batch_size) {
  ir::PlanGraph plan;
  plan.batch = Samples(batch_size);
  IdMap<ir::NodeId, ir::PlanNodeId> node_of(graph.node_count());
  for (ir::NodeId id : graph.node_ids()) {
    const ir::Node& node = graph.node(id);
    bool has_samples = false;
    for (ir::ValueId output : node.outputs) has_samples |= graph.value(output).batch != ir::BatchKind::kNone;
    if (node.phase != ir::Phase::kForward || !has_samples) continue;
    ir::PlanNode planned;
    planned.source = id;
    planned.label = node.origins.empty() ? ModelText() : node.origins.front();
    planned.forward = ir::SampleFunction::polynomial(0, 1);
    node_of[id] = plan.nodes.push_back(planned);
  }
  const auto readers = ir::readers_of_values(graph);
  for (ir::ValueId id : graph.value_ids()) {
    const ir::Value& value = graph.value(id);
    if (!value.producer.valid() || !node_of[value.producer].valid()) continue;
    ir::PlanValue planned;
    planned.source = id;
    planned.producer = node_of[value.producer];
    planned.batch = value.batch;
    planned.bytes = ir::SampleFunction::polynomial(0, 4);
    for (ir::NodeId reader : readers[id])
      if (graph.node(reader).phase == ir::Phase::kForward) planned.readers.push_back(node_of[reader]);
    if (!planned.readers.empty()) plan.values.push_back(planned);
  }
  return plan;
}

/// The graph with a loss of this kind, differentiated and cleaned up as for training.
inline ir::Graph trained(ir::Graph graph, const char* kind, const char* output) {
  passes::PassContext context;
  context.loss = {.kind = kind, .output = ModelText(output), .label = ModelText("label")};
  auto result = passes::run_pipeline(std::move(graph), context);
  GP_CHECK(result.ok());
  return std::move(result).value();
}

/// The stage graph where plan node i is in stage stage_of[i], one device each.
inline Result<ir::StageGraph> stages_of(const ir::PlanGraph& plan, const std::vector<size_t>& stage_of,
                                        int64_t micro_batch, bool recompute = false) {
  ir::Assignment assignment;
  size_t count = 0;
  for (size_t stage : stage_of) {
    assignment.stage_of.push_back(ir::StageId(stage));
    count = std::max(count, stage + 1);
  }
  for (size_t stage = 0; stage < count; ++stage) {
    ir::StageChoice choice;
    choice.devices = {ir::DeviceId(stage)};
    choice.micro_batch = Samples(micro_batch);
    choice.recompute = recompute;
    assignment.choice.push_back(choice);
  }
  return ir::build_stage_graph(plan, assignment);
}

}  // namespace graphpipe::tests
