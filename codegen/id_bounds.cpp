#include "codegen/id_bounds.h"

#include <algorithm>
#include <utility>

#include "ops/op_def.h"

namespace graphpipe::codegen {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

/// Follows a value back to the value that it is a copy or a rearrangement of.
ValueId source_of(const Graph& graph, ValueId value) {
  while (graph.value(value).producer.valid()) {
    const Node& node = graph.node(graph.value(value).producer);
    if (!ops::keeps_elements(ops::NodeView(graph, node))) break;
    value = node.inputs.front();
  }
  return value;
}

/// The ids that both bounds allow.
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

wire::IdBounds id_bounds(const Graph& graph, ValueId input) {
  wire::IdBounds bounds;
  if (ir::is_floating(graph.value(input).type.dtype)) return bounds;
  for (NodeId id : graph.node_ids()) {
    const Node& node = graph.node(id);
    const ops::OpDef* entry = ops::find_op(node.op);
    if (node.phase != ir::Phase::kForward || entry == nullptr || entry->ids == nullptr) continue;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!node.inputs[i].valid() || source_of(graph, node.inputs[i]) != input) continue;
      const wire::IdBounds found = entry->ids(ops::NodeView(graph, node), i);
      if (found.bounded()) bounds = bounds.bounded() ? intersection(bounds, found) : found;
    }
  }
  return bounds;
}

}  // namespace graphpipe::codegen
