#include "passes/losses/counted_mean.h"

#include <algorithm>
#include <functional>
#include <set>

#include "ops/op_def.h"
#include "passes/expression.h"
#include "passes/losses/label_positions.h"

namespace graphpipe::passes {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;
using ops::SampleSum;

/// The inputs that depend on the samples, if the node's output is a sum over the samples where these are; else none.
std::vector<ValueId> summed_by(const Graph& graph, const Node& node, const ops::OpDef& entry) {
  if (entry.sample_sum == nullptr || node.outputs.size() != 1) return {};
  std::vector<ValueId> varying;
  std::vector<SampleSum> kinds(node.inputs.size(), SampleSum::kNone);
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const ValueId input = node.inputs[i];
    if (!input.valid() || graph.value(input).batch == ir::BatchKind::kNone) continue;
    if (graph.value(input).batch != ir::BatchKind::kMixed) return {};
    varying.push_back(input);
    kinds[i] = SampleSum::kSum;
  }
  if (entry.sample_sum(ops::NodeView(graph, node), kinds) != SampleSum::kSum) return {};
  return varying;
}

/// The input that depends on the samples, if the node adds nothing but 0 to it; else invalid. Several zeros would
/// repeat it.
ValueId equal_input(const Graph& graph, const Expressions& expressions, const Node& node) {
  const ValueId output = node.outputs.front();
  const auto sum = expressions.with_constant(output, "Add");
  if (!sum || sum->second != 0 || graph.value(sum->first).batch != ir::BatchKind::kMixed) return {};
  return graph.value(sum->first).type == graph.value(output).type ? sum->first : ValueId();
}

}  // namespace

std::optional<ir::Loss> stated_by(const Graph& graph, const Node& mean) {
  const ops::OpDef* entry = ops::find_op(mean.op);
  if (entry == nullptr || entry->counted_mean == nullptr) return std::nullopt;
  const std::optional<ops::CountedLabels> labels = entry->counted_mean(ops::NodeView(graph, mean));
  if (!labels) return std::nullopt;
  const std::optional<LabelPositions> positions =
      label_positions(graph, mean.inputs[labels->input], labels->ignore_index);
  if (!positions) return std::nullopt;
  return ir::Loss{.normalizer = wire::LossNormalizer::kCountedPositions,
                  .label = positions->input,
                  .ignore_index = labels->ignore_index,
                  .counted = positions->counted};
}

std::optional<CountedMean> find_counted_mean(const Graph& graph, ValueId value) {
  const Expressions expressions(graph);
  CountedMean found;
  // From the last node to the first: a node follows those that it reads.
  std::set<ValueId> read{value};
  std::set<NodeId, std::greater<>> nodes{graph.value(value).producer};
  for (; !nodes.empty(); nodes.erase(nodes.begin())) {
    const NodeId id = *nodes.begin();
    if (!id.valid()) return std::nullopt;
    const Node& node = graph.node(id);
    const ops::OpDef* entry = ops::find_op(node.op);
    if (entry == nullptr) return std::nullopt;
    if (entry->counted_mean != nullptr && read.contains(node.outputs.front())) {
      const std::optional<ir::Loss> stated = stated_by(graph, node);
      if (!stated || (!found.means.empty() && *stated != found.stated)) return std::nullopt;
      found.means.push_back(id);
      found.stated = *stated;
      continue;
    }
    const ValueId equal = equal_input(graph, expressions, node);
    const std::vector<ValueId> inputs = equal.valid() ? std::vector{equal} : summed_by(graph, node, *entry);
    if (inputs.empty()) return std::nullopt;
    found.behind.push_back({id, equal});
    for (const ValueId input : inputs) {
      read.insert(input);
      nodes.insert(graph.value(input).producer);
    }
  }
  std::ranges::reverse(found.means);
  std::ranges::reverse(found.behind);
  return found;
}

}  // namespace graphpipe::passes
