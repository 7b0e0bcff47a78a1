#pragma once
// Seeded random operator graphs that pass verify_graph: for laws over the text form and the rewriting helpers. Their
// operators mean nothing.

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace graphpipe::tests {

class RandomGraph {
 public:
  explicit RandomGraph(uint64_t seed) : random_(seed) {}

  ir::Graph make() {
    const int sources = below(3) + 1, params = below(4), nodes = below(12) + 1;
    for (int i = 0; i < sources; ++i) graph_.add_input({.name = name("in"), .role = role()}, value());
    for (int i = 0; i < params; ++i) add_param();
    for (int i = 0; i < nodes; ++i) add_node(ir::Phase::kForward);
    for (int i = below(3) + 1; i > 0; --i)
      graph_.outputs().push_back({.value = any_value(), .name = name("out"), .role = ir::OutputRole::kModel});
    if (below(2) == 0) add_gradients();
    return std::move(graph_);
  }

 private:
  int below(int limit) { return std::uniform_int_distribution<int>(0, limit - 1)(random_); }

  // Names of a model hold anything.
  ModelText name(const std::string& start) {
    static constexpr const char* kEnds[] = {"",         "/Conv",  "\"quoted\"",  "\\back\n",
                                            "\xff\x01", " space", "\xe2\x82\xac"};
    return ModelText(start + std::to_string(count_++) + kEnds[below(7)]);
  }

  ir::InputRole role() { return below(3) == 0 ? ir::InputRole::kLabel : ir::InputRole::kData; }
  ir::DType dtype() { return static_cast<ir::DType>(below(10)); }

  ir::Value value() {
    ir::Value value{.type = {.dtype = dtype(), .shape = {}}};
    for (int i = below(4); i > 0; --i) value.type.shape.push_back(ir::Dim::fixed(below(6)));
    const int kind = below(4);
    if (kind >= 2 && !value.type.shape.empty()) {
      value.batch = ir::BatchKind::kAxis;
      value.batch_axis = below(static_cast<int>(value.type.shape.size()));
      value.type.shape[static_cast<size_t>(value.batch_axis)] = ir::Dim::batch(below(4) + 1);
    } else if (kind == 1) {
      value.batch = ir::BatchKind::kMixed;
      for (int i = below(3); i > 0; --i) value.type.shape.push_back({below(3) + 1, below(2) + 1});
    }
    return value;
  }

  ir::Value fixed_value() {
    ir::Value value{.type = {.dtype = dtype(), .shape = {}}};
    for (int i = below(3); i > 0; --i) value.type.shape.push_back(ir::Dim::fixed(below(4)));
    return value;
  }

  void add_param() {
    ir::Value value = fixed_value();
    const auto bytes = ir::byte_size(value.type, Samples(1)).count;
    ir::Param param{.name = name("param"), .kind = static_cast<ir::ParamKind>(below(3))};
    for (int i = below(3); i > 0; --i) param.aliases.push_back(name("alias"));
    param.trainable = param.kind == ir::ParamKind::kWeight && ir::is_floating(value.type.dtype) && below(2) == 0;
    param.gradient_by_rows = param.trainable && below(3) == 0;
    switch (below(3)) {
      case 0:
        param.data = ir::FileRange{"dir/model \"x\".onnx", below(1000), bytes};
        break;
      case 1:
        param.data = ir::FilledData{real()};
        break;
      default: {
        std::string data(static_cast<size_t>(bytes), '\0');
        for (char& byte : data) byte = static_cast<char>(below(256));
        param.data = ir::InlineData{std::move(data)};
      }
    }
    graph_.add_param(std::move(param), std::move(value));
  }

  double real() { return std::ldexp(std::uniform_real_distribution<double>(-1, 1)(random_), below(200) - 100); }

  ir::AttributeValue attribute() {
    switch (below(6)) {
      case 0:
        return static_cast<int64_t>(random_());
      case 1:
        return real();
      case 2:
        return name("text").raw();
      case 3:
        return std::vector<int64_t>(static_cast<size_t>(below(4)), -below(100));
      case 4:
        return std::vector<double>(static_cast<size_t>(below(4)), real());
      default:
        return ir::Shape(static_cast<size_t>(below(4)), ir::Dim{below(9), below(3)});
    }
  }

  ir::ValueId any_value() { return ir::ValueId(static_cast<size_t>(below(static_cast<int>(graph_.value_count())))); }

  void add_node(ir::Phase phase) {
    ir::Node node{.op = below(10) == 0 ? "odd op" : "Op" + std::to_string(below(9)), .phase = phase};
    for (int i = below(4); i > 0; --i) node.inputs.push_back(below(8) == 0 ? ir::ValueId() : any_value());
    for (int i = below(4); i > 0; --i)
      node.attributes.set(below(9) == 0 ? "od d" : "a" + std::to_string(i), attribute());
    for (int i = below(3); i > 0; --i) node.origins.push_back(name("node"));
    if (phase != ir::Phase::kForward) node.serves = ir::NodeId(0);
    if (phase == ir::Phase::kInputGradient && below(2) == 0) node.sums_gradient_of = ir::ValueId(0);
    std::vector<ir::Value> outputs;
    for (int i = below(3); i >= 0; --i) outputs.push_back(value());
    graph_.add_node(std::move(node), std::move(outputs));
  }

  // Input gradients, then weight gradients: the phases never run backwards.
  void add_gradients() {
    const size_t forward_values = graph_.value_count();
    for (int i = below(4); i > 0; --i) add_node(ir::Phase::kInputGradient);
    for (int i = below(4); i > 0; --i) add_node(ir::Phase::kWeightGradient);
    graph_.gradient_of().resize(forward_values);
    for (ir::ValueId id : ids<ir::ValueId>(forward_values)) {
      ir::ValueId gradient = any_value();
      if (graph_.value(gradient).type == graph_.value(id).type) graph_.gradient_of()[id] = gradient;
    }
    for (ir::ParamId param : graph_.param_ids()) {
      if (!graph_.param(param).trainable) continue;
      ir::Value share = graph_.value(graph_.param(param).value);
      const ir::NodeId node = graph_.add_node(
          {.op = "Share", .phase = ir::Phase::kWeightGradient, .serves = ir::NodeId(0)}, {std::move(share)});
      graph_.gradient_shares().push_back({param, graph_.node(node).outputs[0]});
    }
  }

  std::mt19937_64 random_;
  ir::Graph graph_;
  int count_ = 0;
};

inline ir::Graph random_graph(uint64_t seed) { return RandomGraph(seed).make(); }

}  // namespace graphpipe::tests
