#include "passes/losses/counted_mean.h"

#include <algorithm>

#include "ops/op_def.h"
#include "passes/losses/label_positions.h"

namespace graphpipe::passes {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;
using ops::SampleSum;

/// The only input that depends on the samples, if the node's output is a constant multiple or a view of it: the node's
/// rule then implies that the output is a sum over the samples if this input is one.
ValueId multiple_of(const Graph& graph, const Node& node, const ops::OpDef& entry) {
  if (entry.sample_sum == nullptr || node.outputs.size() != 1) return {};
  ValueId varying;
  std::vector<SampleSum> kinds(node.inputs.size(), SampleSum::kNone);
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const ValueId input = node.inputs[i];
    if (!input.valid() || graph.value(input).batch == ir::BatchKind::kNone) continue;
    if (varying.valid() || graph.value(input).batch != ir::BatchKind::kMixed) return {};
    varying = input;
    kinds[i] = SampleSum::kSum;
  }
  if (!varying.valid() || entry.sample_sum(ops::NodeView(graph, node), kinds) != SampleSum::kSum) return {};
  return varying;
}

}  // namespace

std::optional<CountedMean> find_counted_mean(const Graph& graph, ValueId value) {
  CountedMean found;
  while (graph.value(value).producer.valid()) {
    const NodeId id = graph.value(value).producer;
    const Node& node = graph.node(id);
    const ops::OpDef* entry = ops::find_op(node.op);
    if (entry == nullptr) return std::nullopt;
    if (entry->counted_mean != nullptr && node.outputs.front() == value) {
      const ops::NodeView view(graph, node);
      const std::optional<ops::CountedLabels> labels = entry->counted_mean(view);
      if (!labels) return std::nullopt;
      const std::optional<LabelPositions> positions =
          label_positions(graph, node.inputs[labels->input], labels->ignore_index);
      if (!positions) return std::nullopt;
      found.node = id;
      found.stated = {.normalizer = wire::LossNormalizer::kCountedPositions,
                      .label = positions->input,
                      .ignore_index = labels->ignore_index,
                      .counted = positions->counted};
      std::ranges::reverse(found.behind);
      return found;
    }
    value = multiple_of(graph, node, *entry);
    if (!value.valid()) return std::nullopt;
    found.behind.push_back(id);
  }
  return std::nullopt;
}

}  // namespace graphpipe::passes
