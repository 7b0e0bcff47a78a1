#include "codegen/loss_facts.h"

#include <algorithm>
#include <array>
#include <utility>

namespace graphpipe::codegen {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

/// Whether the first output holds the elements of the first input, each of them, as they are.
bool keeps_elements(const Graph& graph, const Node& node) {
  constexpr std::array<std::string_view, 6> kRearranges = {"Reshape",   "Squeeze",  "Unsqueeze",
                                                           "Transpose", "Identity", "Flatten"};
  if (std::ranges::find(kRearranges, node.op) != kRearranges.end()) return true;
  // Narrower integers would wrap, floats round, and booleans are two.
  const ir::DType to = graph.value(node.outputs.front()).type.dtype;
  return node.op == "Cast" && (to == ir::DType::kInt64 || to == ir::DType::kInt32);
}

/// Follows a value back to what it is a copy or a reordering of.
ValueId source_of(const Graph& graph, ValueId value) {
  while (graph.value(value).producer.valid()) {
    const Node& node = graph.node(graph.value(value).producer);
    if (!keeps_elements(graph, node)) break;
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

wire::IdBounds bounds_from_reader(const Graph& graph, const Node& node, ValueId value) {
  const auto size_at = [&](ValueId of, int64_t axis) -> int64_t {
    const ir::Shape& shape = graph.value(of).type.shape;
    if (axis < 0) axis += static_cast<int64_t>(shape.size());
    if (axis < 0 || axis >= static_cast<int64_t>(shape.size())) return 0;
    const ir::Dim dim = shape[static_cast<size_t>(axis)];
    return dim.is_fixed() ? dim.factor : 0;
  };
  if ((node.op == "Gather" || node.op == "GatherElements") && node.inputs[1] == value) {
    const int64_t rows = size_at(node.inputs[0], node.attributes.get_int("axis", 0));
    return {.low = -rows, .high = rows};
  }
  if (node.op == "CrossEntropyLossSum" && node.inputs[1] == value)
    return {.low = 0,
            .high = size_at(node.inputs[0], node.attributes.get_int("axis", 1)),
            .has_ignored = true,
            .ignored = node.attributes.get_int("ignore_index", -100)};
  return {};
}

/// What both allow.
wire::IdBounds intersection(const wire::IdBounds& a, const wire::IdBounds& b) {
  wire::IdBounds both{.low = std::max(a.low, b.low), .high = std::min(a.high, b.high)};
  for (const auto& [one, other] : {std::pair(a, b), std::pair(b, a)}) {
    if (!one.has_ignored || !other.hold(one.ignored)) continue;
    both.has_ignored = true;
    both.ignored = one.ignored;
  }
  return both;
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

wire::IdBounds id_bounds(const Graph& graph, ValueId input) {
  wire::IdBounds bounds;
  if (ir::is_floating(graph.value(input).type.dtype)) return bounds;
  for (NodeId id : graph.node_ids()) {
    const Node& node = graph.node(id);
    if (node.phase != ir::Phase::kForward) continue;
    for (ValueId value : node.inputs) {
      if (!value.valid() || source_of(graph, value) != input) continue;
      const wire::IdBounds found = bounds_from_reader(graph, node, value);
      if (found.bounded()) bounds = bounds.bounded() ? intersection(bounds, found) : found;
    }
  }
  return bounds;
}

}  // namespace graphpipe::codegen
