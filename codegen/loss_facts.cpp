#include "codegen/loss_facts.h"

#include <algorithm>
#include <array>

namespace graphpipe::codegen {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

/// Follows a value back to what it is a cast, view or reordering of.
ValueId source_of(const Graph& graph, ValueId value) {
  constexpr std::array<std::string_view, 7> kSameElements = {"Cast",      "Reshape",  "Squeeze", "Unsqueeze",
                                                             "Transpose", "Identity", "Flatten"};
  while (graph.value(value).producer.valid()) {
    const Node& node = graph.node(graph.value(value).producer);
    if (std::ranges::find(kSameElements, node.op) == kSameElements.end()) break;
    value = node.inputs.front();
  }
  return value;
}

/// The node that computes the summed loss, none where there is no loss of attach_loss's form.
NodeId loss_node(const Graph& graph) {
  for (const ir::Output& output : graph.outputs()) {
    if (output.role != ir::OutputRole::kLoss || !graph.value(output.value).producer.valid()) continue;
    const Node& product = graph.node(graph.value(output.value).producer);
    if (product.op == "Mul") return graph.value(product.inputs.front()).producer;
  }
  return {};
}

int64_t elements_per_sample(const ir::TensorType& type) {
  const std::optional<ir::Dim> count = ir::element_count(type.shape);
  return count && count->power == 1 ? count->factor : 1;
}

int64_t limit_from_reader(const Graph& graph, const Node& node, ValueId value) {
  const auto size_at = [&](ValueId of, int64_t axis) -> int64_t {
    const ir::Shape& shape = graph.value(of).type.shape;
    if (axis < 0) axis += static_cast<int64_t>(shape.size());
    if (axis < 0 || axis >= static_cast<int64_t>(shape.size())) return 0;
    const ir::Dim dim = shape[static_cast<size_t>(axis)];
    return dim.is_fixed() ? dim.factor : 0;
  };
  if (node.op == "Gather" && node.inputs[1] == value)
    return size_at(node.inputs[0], node.attributes.get_int("axis", 0));
  if (node.op == "CrossEntropyLossSum" && node.inputs[1] == value)
    return size_at(node.inputs[0], node.attributes.get_int("axis", 1));
  return 0;
}

}  // namespace

LossFacts loss_facts(const Graph& graph) {
  LossFacts facts;
  const NodeId id = loss_node(graph);
  if (!id.valid()) return facts;
  const Node& node = graph.node(id);
  if (node.op == "CrossEntropyLossSum") {
    facts.normalizer = LossFacts::Normalizer::kCountedPositions;
    facts.ignore_index = node.attributes.get_int("ignore_index", -100);
    const ValueId label = source_of(graph, node.inputs[1]);
    for (const ir::Input& input : graph.inputs())
      if (input.value == label) facts.label = input.name;
  } else if (node.op == "MeanSquaredErrorSum" || node.op == "BceWithLogitsSum") {
    facts.normalizer = LossFacts::Normalizer::kSamples;
    facts.elements_per_sample = elements_per_sample(graph.value(node.inputs[0]).type);
  } else if (node.op == "ContrastiveLossSum" || node.op == "ScaleBySamples") {
    facts.normalizer = LossFacts::Normalizer::kSamples;
  }
  return facts;
}

int64_t integer_limit(const Graph& graph, ValueId input) {
  int64_t limit = 0;
  for (NodeId id : graph.node_ids()) {
    const Node& node = graph.node(id);
    if (node.phase != ir::Phase::kForward) continue;
    for (ValueId value : node.inputs) {
      if (!value.valid() || source_of(graph, value) != input) continue;
      const int64_t found = limit_from_reader(graph, node, value);
      if (found > 0) limit = limit == 0 ? found : std::min(limit, found);
    }
  }
  return limit == 0 ? 2 : limit;
}

}  // namespace graphpipe::codegen
