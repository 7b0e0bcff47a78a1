#include "passes/losses/class_axis.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "ops/op_def.h"

namespace graphpipe::passes {
namespace {

using ir::Graph;
using ir::Shape;
using ir::ValueId;

Diagnostic undecided(const ir::LossSpec& spec, std::string message) {
  return {.code = Code::kBadLoss,
          .origin = spec.output,
          .message = std::move(message),
          .hint = "name the class axis: --loss cross_entropy:OUTPUT,LABEL,axis=N"};
}

Shape without_axis(const Shape& shape, int axis) {
  Shape result = shape;
  result.erase(result.begin() + axis);
  return result;
}

/// The fixed axes whose removal leaves exactly the label's shape.
std::vector<int> axes_fitting_label(const Shape& logits, const Shape& label) {
  std::vector<int> axes;
  for (int axis = 0; axis < static_cast<int>(logits.size()); ++axis)
    if (logits[static_cast<size_t>(axis)].is_fixed() && without_axis(logits, axis) == label) axes.push_back(axis);
  return axes;
}

bool keeps_axes(const ir::Node& node, const ops::OpDef& entry) {
  return entry.dependence == ops::Dependence::kElement || entry.dependence == ops::Dependence::kAlongAxis ||
         node.op == "Slice" || node.op == "Concat";
}

/// Where an axis of what was turned is behind these permutations, the last one first.
int turned_axis(int64_t axis, const std::vector<std::vector<int64_t>>& perms) {
  for (auto perm = perms.rbegin(); perm != perms.rend(); ++perm) axis = std::ranges::find(*perm, axis) - perm->begin();
  return static_cast<int>(axis);
}

/// The feature axis according to the operator that produced the value; operators that keep the axes are looked through,
/// and those that turn them are followed.
std::optional<int> axis_from_producer(const Graph& graph, ValueId logits) {
  ValueId value = logits;
  const int64_t last = std::ssize(graph.value(logits).type.shape) - 1;
  std::vector<std::vector<int64_t>> perms;
  for (size_t depth = 0; depth < graph.node_count() && graph.value(value).producer.valid(); ++depth) {
    const ir::Node& node = graph.node(graph.value(value).producer);
    const ops::OpDef* entry = ops::find_op(node.op);
    if (entry == nullptr) return std::nullopt;
    if (entry->features == ops::FeatureAxis::kLast) return turned_axis(last, perms);
    if (entry->features == ops::FeatureAxis::kSecond) return turned_axis(1, perms);
    if (node.op == "Transpose") perms.push_back(node.attributes.get_ints("perm"));
    else if (!keeps_axes(node, *entry)) return std::nullopt;
    // Of two summands, the features are the one with a producer and the full rank; the other is a bias.
    ValueId next;
    for (ValueId input : node.inputs)
      if (!next.valid() && input.valid() && graph.value(input).producer.valid() &&
          graph.value(input).type.shape.size() == graph.value(logits).type.shape.size())
        next = input;
    if (!next.valid()) return std::nullopt;
    value = next;
  }
  return std::nullopt;
}

}  // namespace

Result<int> find_class_axis(const Graph& graph, ValueId logits, ValueId label, const ir::LossSpec& spec) {
  const Shape& shape = graph.value(logits).type.shape;
  const int rank = static_cast<int>(shape.size());
  if (spec.options.has("axis")) {
    const int64_t asked = spec.options.get_int("axis", 0), axis = asked < 0 ? asked + rank : asked;
    if (axis < 0 || axis >= rank || !shape[static_cast<size_t>(axis)].is_fixed())
      return undecided(spec, text("axis ", asked, " is not a class axis of an output with ", rank, " axes"));
    return static_cast<int>(axis);
  }
  if (rank < 2)
    return undecided(spec, text("cross entropy needs logits with a class axis, this output has ", rank, " axes"));
  if (label.valid()) {
    const std::vector<int> axes = axes_fitting_label(shape, graph.value(label).type.shape);
    if (axes.size() == 1) return axes.front();
    if (axes.empty()) return undecided(spec, "no axis of the logits can be left out to give the label's shape");
  }
  if (rank == 2) return 1;
  if (const std::optional<int> axis = axis_from_producer(graph, logits);
      axis && shape[static_cast<size_t>(*axis)].is_fixed())
    return *axis;
  if (rank > 3) return 1;
  return undecided(spec, "logits with three axes may be [B,T,C] or [B,C,T], and nothing tells which");
}

}  // namespace graphpipe::passes
