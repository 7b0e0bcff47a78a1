#include "passes/split_slices.h"

#include <algorithm>
#include <map>
#include <utility>

#include "passes/expression.h"
#include "passes/rebuild.h"

namespace graphpipe::passes {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Shape;
using ir::ValueId;

/// Rows start .. start + size - 1 of `whole` along `axis`.
struct Part {
  ValueId whole;
  size_t axis = 0;
  int64_t start = 0, size = 0;
  /// Whether the result has lost the axis, as after a Gather of one row.
  bool drops_axis = false;
};

int64_t from_front(int64_t place, int64_t size) { return place < 0 ? place + size : place; }

std::optional<Part> part_of_slice(const Graph& graph, const Node& node) {
  const std::vector<int64_t> axes = node.attributes.get_ints("axes"), steps = node.attributes.get_ints("steps"),
                             starts = node.attributes.get_ints("starts");
  const bool is_dense = std::all_of(steps.begin(), steps.end(), [](int64_t step) { return step == 1; });
  if (axes.size() != 1 || starts.size() != 1 || !is_dense) return std::nullopt;
  const Shape& shape = shape_of(graph, node.inputs[0]);
  const auto axis = static_cast<size_t>(from_front(axes[0], static_cast<int64_t>(shape.size())));
  if (!shape[axis].is_fixed()) return std::nullopt;
  const int64_t start = std::clamp<int64_t>(from_front(starts[0], shape[axis].factor), 0, shape[axis].factor);
  return Part{node.inputs[0], axis, start, shape_of(graph, node.outputs[0])[axis].factor};
}

/// A Gather of one row, whose index is a constant scalar.
std::optional<Part> part_of_look_up(const Graph& graph, const Expressions& parts, const Node& node) {
  const std::optional<double> row = parts.constant(node.inputs[1]);
  if (!row || !shape_of(graph, node.inputs[1]).empty()) return std::nullopt;
  const Shape& shape = shape_of(graph, node.inputs[0]);
  const auto axis =
      static_cast<size_t>(from_front(node.attributes.get_int("axis", 0), static_cast<int64_t>(shape.size())));
  const bool is_weight = graph.value(node.inputs[0]).batch == ir::BatchKind::kNone;
  if (is_weight || !shape[axis].is_fixed()) return std::nullopt;
  const int64_t start = from_front(static_cast<int64_t>(*row), shape[axis].factor);
  if (start < 0 || start >= shape[axis].factor) return std::nullopt;
  return Part{node.inputs[0], axis, start, 1, true};
}

/// The parts of a graph, and which of them become outputs of one Split.
class Parts {
 public:
  explicit Parts(const Graph& graph) {
    const Expressions expressions(graph);
    std::map<std::pair<ValueId, size_t>, std::vector<NodeId>> of_axis;
    for (NodeId id : graph.node_ids()) {
      const Node& node = graph.node(id);
      std::optional<Part> part;
      if (node.op == "Slice") part = part_of_slice(graph, node);
      if (node.op == "Gather") part = part_of_look_up(graph, expressions, node);
      if (part) of_axis[{part->whole, part->axis}].push_back(id);
      parts_.push_back(part);
    }
    for (auto& [place, nodes] : of_axis) keep_tiling(graph, place.first, place.second, std::move(nodes));
  }

  const std::optional<Part>& part(size_t node) const { return parts_[node]; }
  /// The sizes of the Split that the node becomes an output of; null if there is none.
  const std::vector<int64_t>* sizes(size_t node) const {
    const auto found = sizes_of_.find(node);
    return found == sizes_of_.end() ? nullptr : &found->second;
  }

 private:
  /// Makes the nodes outputs of one Split if they cover the axis without a gap or an overlap.
  void keep_tiling(const Graph& graph, ValueId whole, size_t axis, std::vector<NodeId> nodes) {
    std::ranges::sort(nodes, {}, [this](NodeId id) { return parts_[id.index()]->start; });
    std::vector<int64_t> sizes;
    int64_t next = 0;
    for (NodeId id : nodes) {
      const Part& part = *parts_[id.index()];
      if (part.start != next || part.size == 0) return;
      next += part.size;
      sizes.push_back(part.size);
    }
    if (nodes.size() < 2 || next != shape_of(graph, whole)[axis].factor) return;
    for (NodeId id : nodes) sizes_of_.emplace(id.index(), sizes);
  }

  std::vector<std::optional<Part>> parts_;  // by node
  std::map<size_t, std::vector<int64_t>> sizes_of_;
};

class SliceSplitter {
 public:
  explicit SliceSplitter(const Graph& graph) : parts_(graph) {}

  Result<Replacement> run(const Rebuilding& step) {
    const size_t node = visited_++;
    const std::optional<Part>& part = parts_.part(node);
    if (!part) return Replacement();
    const std::vector<int64_t>* sizes = parts_.sizes(node);
    if (sizes == nullptr && !part->drops_axis) return Replacement();
    GP_TRY(ValueId rows, sizes == nullptr ? sliced(step, *part) : split(step, *part, *sizes));
    if (!part->drops_axis) return Replacement({rows});
    GP_TRY(rows, append_like(step.made, step.node, "Squeeze", {rows},
                             {{"axes", std::vector<int64_t>{static_cast<int64_t>(part->axis)}}}));
    return Replacement({rows});
  }

 private:
  static Result<ValueId> sliced(const Rebuilding& step, const Part& part) {
    return append_like(step.made, step.node, "Slice", {step.node.inputs[0]},
                       {{"axes", std::vector<int64_t>{static_cast<int64_t>(part.axis)}},
                        {"ends", std::vector<int64_t>{part.start + part.size}},
                        {"starts", std::vector<int64_t>{part.start}},
                        {"steps", std::vector<int64_t>{1}}});
  }

  /// The part's output of the Split, which the first part to be rebuilt appends.
  Result<ValueId> split(const Rebuilding& step, const Part& part, const std::vector<int64_t>& sizes) {
    const ValueId whole = step.node.inputs[0];
    std::vector<ValueId>& outputs = outputs_of_[{whole, part.axis}];
    if (outputs.empty()) {
      Node node;
      node.op = "Split";
      node.inputs = {whole};
      node.attributes = {{"axis", static_cast<int64_t>(part.axis)}, {"sizes", sizes}};
      node.origins = step.node.origins;
      GP_TRY(const NodeId id, append_node(step.made, std::move(node)));
      outputs = step.made.node(id).outputs;
    }
    int64_t start = 0;
    for (size_t i = 0; i < sizes.size(); start += sizes[i++])
      if (start == part.start) return outputs[i];
    GP_CHECK(false);
  }

  Parts parts_;
  size_t visited_ = 0;
  std::map<std::pair<ValueId, size_t>, std::vector<ValueId>> outputs_of_;
};

}  // namespace

Result<Graph> split_slices(Graph graph, const PassContext&) {
  SliceSplitter splitter(graph);
  return rebuild(std::move(graph), [&](const Rebuilding& step) { return splitter.run(step); });
}

}  // namespace graphpipe::passes
