#include "driver/report/zero_gradients.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

namespace graphpipe::driver {
namespace {

using ir::ValueId;

/// One axis of a value. All that follows asks whether the value adds up to zero over all its other axes.
struct Channels {
  ValueId value;
  int64_t axis = 0;
};

const ir::Shape& shape_of(const ir::Graph& graph, ValueId value) { return graph.value(value).type.shape; }

int64_t rank_of(const ir::Graph& graph, ValueId value) { return static_cast<int64_t>(shape_of(graph, value).size()); }

std::optional<ir::Dim> elements_behind(const ir::Shape& shape, int64_t axis) {
  return ir::element_count(ir::Shape(shape.begin() + axis + 1, shape.end()));
}

/// The axis of `from` that has the same numbers of the same elements as `axis` of `to`, a shape of as many elements.
std::optional<int64_t> same_axis(const ir::Shape& from, const ir::Shape& to, int64_t axis) {
  const std::optional<ir::Dim> behind = elements_behind(to, axis);
  if (!behind) return std::nullopt;
  for (size_t i = 0; i < from.size(); ++i)
    if (from[i] == to[static_cast<size_t>(axis)] && elements_behind(from, static_cast<int64_t>(i)) == behind)
      return static_cast<int64_t>(i);
  return std::nullopt;
}

/// The axes that a reduction of a value of this rank takes away, or keeps with one number.
std::vector<bool> reduced_axes(const ir::Node& node, int64_t rank) {
  const std::vector<int64_t> axes = node.attributes.get_ints("axes");
  std::vector<bool> reduced(static_cast<size_t>(rank), axes.empty());
  for (const int64_t axis : axes) reduced.at(static_cast<size_t>(axis < 0 ? axis + rank : axis)) = true;
  return reduced;
}

/// For each axis of a reduction's input, which of its result it is; nothing for reduced ones.
std::vector<std::optional<int64_t>> axes_of_result(const ir::Node& node, int64_t rank) {
  const bool keeps = node.attributes.get_int("keepdims", 1) != 0;
  std::vector<std::optional<int64_t>> of_result;
  int64_t next = 0;
  for (const bool is_reduced : reduced_axes(node, rank)) {
    of_result.push_back(is_reduced ? std::nullopt : std::optional(next));
    if (!is_reduced || keeps) ++next;
  }
  return of_result;
}

/// The axis of a ReduceSum's input that is `axis` of its result.
std::optional<int64_t> axis_before_sum(const ir::Node& node, int64_t rank, int64_t axis) {
  const auto of_result = axes_of_result(node, rank);
  const auto found = std::ranges::find(of_result, std::optional(axis));
  return found == of_result.end() ? std::nullopt : std::optional<int64_t>(found - of_result.begin());
}

bool is_weight_matrix(const ir::Graph& graph, ValueId value) {
  return graph.value(value).batch == ir::BatchKind::kNone && rank_of(graph, value) == 2;
}

/// The axis of input 0 over whose other axes it must add up to zero for the result to do so over all but `axis`, where
/// the node is linear in input 0 and does the same at all its places.
std::optional<int64_t> axis_before(const ir::Graph& graph, const ir::Node& node, int64_t axis) {
  const ValueId input = node.inputs[0], output = node.outputs[0];
  const int64_t last = rank_of(graph, output) - 1;
  const auto is = [&](auto... names) { return ((node.op == names) || ...); };
  if (is("Cast", "Identity", "Scale", "Neg")) return axis;
  if (is("Reshape", "Squeeze", "Unsqueeze")) return same_axis(shape_of(graph, input), shape_of(graph, output), axis);
  if (is("Transpose")) {
    const std::vector<int64_t> order = node.attributes.get_ints("perm");
    return axis < static_cast<int64_t>(order.size()) ? std::optional(order[axis]) : std::nullopt;
  }
  if (is("ReduceSum")) return axis_before_sum(node, rank_of(graph, input), axis);
  if (is("ReduceSumGrad", "ReduceMeanGrad")) return axes_of_result(node, last + 1)[static_cast<size_t>(axis)];
  if (is("Expand")) {
    const int64_t before = axis - (last + 1 - rank_of(graph, input));
    const bool is_same = before >= 0 && shape_of(graph, input)[before] == shape_of(graph, output)[axis];
    return is_same ? std::optional(before) : std::nullopt;
  }
  // These make channels of channels.
  const bool keeps_channels = (is("ConvGradInput", "AveragePoolGrad") && axis == 1) ||
                              (is("ConcatGrad") && node.attributes.get_int("axis", 0) == axis);
  if (keeps_channels) return axis;
  const bool is_product =
      is("LinearGradInput") || (is("MatMulGradLeft") && is_weight_matrix(graph, node.inputs[1])) ||
      (is("Gemm") && node.attributes.get_int("transA", 0) == 0 && is_weight_matrix(graph, node.inputs[1]) &&
       (node.inputs.size() < 3 || !node.inputs[2].valid()));
  return is_product && axis == last ? std::optional(rank_of(graph, input) - 1) : std::nullopt;
}

/// Whether the value adds up to zero, for each number of the axis, because of BatchNorm.
bool adds_up_to_zero(const ir::Graph& graph, Channels of) {
  std::vector<Channels> open = {of};
  // Sums have several operands, each of which must. Where branches meet again and again their number doubles.
  constexpr size_t kMaxNodes = 1000;
  for (size_t seen = 0; !open.empty(); ++seen) {
    const Channels at = open.back();
    open.pop_back();
    const ir::NodeId producer = graph.value(at.value).producer;
    if (!producer.valid() || seen == kMaxNodes) return false;
    const ir::Node& node = graph.node(producer);
    if (node.op == "BatchNormalizationGradInput") {
      if (at.axis != 1) return false;
    } else if (node.op == "Add") {
      for (const ValueId input : node.inputs) {
        if (shape_of(graph, input) != shape_of(graph, at.value)) return false;
        open.push_back({input, at.axis});
      }
    } else {
      if (node.inputs.empty() || !node.inputs[0].valid()) return false;
      const std::optional<int64_t> before = axis_before(graph, node, at.axis);
      if (!before) return false;
      open.push_back({node.inputs[0], *before});
    }
  }
  return true;
}

/// The only axis of more than one number.
std::optional<int64_t> only_axis(const ir::Shape& shape) {
  std::optional<int64_t> only;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] == ir::Dim::fixed(1) && shape.size() > 1) continue;
    if (only) return std::nullopt;
    only = static_cast<int64_t>(axis);
  }
  return only;
}

}  // namespace

IdMap<ir::ParamId, bool> gradients_of_zero(const ir::Graph& graph) {
  IdMap<ir::ParamId, bool> zero(graph.param_count(), false), other(graph.param_count(), false);
  for (const ir::GradientShare& share : graph.gradient_shares()) {
    const std::optional<int64_t> axis = only_axis(shape_of(graph, share.value));
    (axis && adds_up_to_zero(graph, {share.value, *axis}) ? zero : other)[share.param] = true;
  }
  for (const ir::ParamId id : graph.param_ids()) zero[id] = zero[id] && !other[id];
  return zero;
}

}  // namespace graphpipe::driver
