#include "passes/losses/label_positions.h"

#include <algorithm>
#include <numeric>

#include "ops/op_def.h"

namespace graphpipe::passes {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

/// Labels beyond these limits are not tracked: it would take long, or create long tables.
constexpr int64_t kMaxElements = int64_t{1} << 22;
constexpr size_t kMaxRanges = 4096;

/// Stands for a label element that does not come from the input: the constant that the loss ignores.
constexpr int64_t kIgnored = -1;

/// One sample of a value: for each element, in row-major order, the element of the input's sample it comes from.
struct Places {
  std::vector<int64_t> dims;
  std::vector<int64_t> element;
};

std::optional<std::vector<int64_t>> dims_of_sample(const Graph& graph, ValueId value) {
  const ir::Value& of = graph.value(value);
  const std::optional<ir::Dim> count = ir::element_count(of.type.shape);
  if (of.batch != ir::BatchKind::kAxis || !count || count->factor > kMaxElements) return std::nullopt;
  std::vector<int64_t> dims;
  for (const ir::Dim dim : of.type.shape) dims.push_back(dim.factor);
  return dims;
}

/// Row-major strides.
std::vector<int64_t> strides_of(const std::vector<int64_t>& dims) {
  std::vector<int64_t> strides(dims.size(), 1);
  for (size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
  return strides;
}

/// The value with its axes in this order.
Places transposed(const Places& from, const std::vector<size_t>& axes) {
  const std::vector<int64_t> strides = strides_of(from.dims);
  Places to{{}, std::vector<int64_t>(from.element.size())};
  for (size_t axis : axes) to.dims.push_back(from.dims[axis]);
  std::vector<int64_t> at(axes.size(), 0);
  for (int64_t& element : to.element) {
    int64_t place = 0;
    for (size_t i = 0; i < axes.size(); ++i) place += at[i] * strides[axes[i]];
    element = from.element[static_cast<size_t>(place)];
    for (size_t i = axes.size(); i-- > 0;) {
      if (++at[i] < to.dims[i]) break;
      at[i] = 0;
    }
  }
  return to;
}

/// The value with these rows along one axis, in this order; kIgnored makes a row of the constant.
Places with_rows(const Places& from, size_t axis, const std::vector<int64_t>& rows) {
  const int64_t inner = strides_of(from.dims)[axis], size = from.dims[axis];
  const int64_t block = inner * size;
  Places to{from.dims, {}};
  to.dims[axis] = std::ssize(rows);
  const int64_t outer = block == 0 ? 0 : std::ssize(from.element) / block;
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t row : rows)
      for (int64_t i = 0; i < inner; ++i)
        to.element.push_back(row == kIgnored ? kIgnored
                                             : from.element[static_cast<size_t>(o * block + row * inner + i)]);
  return to;
}

std::optional<Places> sliced(const Node& node, Places places) {
  const std::vector<int64_t> starts = node.attributes.get_ints("starts"), ends = node.attributes.get_ints("ends");
  const std::vector<int64_t> axes = node.attributes.get_ints("axes"), steps = node.attributes.get_ints("steps");
  if (axes.size() != starts.size() || ends.size() != starts.size() || steps.size() != starts.size())
    return std::nullopt;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] < 0 || axes[i] >= std::ssize(places.dims) || steps[i] < 1) return std::nullopt;
    const auto axis = static_cast<size_t>(axes[i]);
    const int64_t size = places.dims[axis];
    const auto clamped = [size](int64_t place) {
      return std::clamp(place < 0 ? place + size : place, int64_t{0}, size);
    };
    std::vector<int64_t> rows;
    for (int64_t row = clamped(starts[i]); row < clamped(ends[i]); row += std::min(steps[i], size)) rows.push_back(row);
    places = with_rows(places, axis, rows);
  }
  return places;
}

std::optional<Places> padded(const Node& node, Places places, int64_t ignored) {
  const std::vector<int64_t> pads = node.attributes.get_ints("pads");
  const size_t rank = places.dims.size();
  if (pads.size() != 2 * rank || node.attributes.get_string("mode", "constant") != "constant") return std::nullopt;
  const bool adds = std::ranges::any_of(pads, [](int64_t count) { return count > 0; });
  if (adds && node.attributes.get_double("value", 0) != static_cast<double>(ignored)) return std::nullopt;
  for (size_t axis = 0; axis < rank; ++axis) {
    const int64_t size = places.dims[axis], before = pads[axis], after = pads[axis + rank];
    if (std::max(before, after) > kMaxElements || std::min(before, after) < -size) return std::nullopt;
    std::vector<int64_t> rows;
    for (int64_t row = -before; row < size + after; ++row) rows.push_back(row >= 0 && row < size ? row : kIgnored);
    if (std::ssize(places.element) / std::max<int64_t>(size, 1) > kMaxElements / std::max<int64_t>(std::ssize(rows), 1))
      return std::nullopt;
    places = with_rows(places, axis, rows);
  }
  return places;
}

/// The places of the node's output, given those of its input 0.
std::optional<Places> places_behind(const Graph& graph, const Node& node, Places places, int64_t ignored) {
  if (node.op == "Slice") return sliced(node, std::move(places));
  if (node.op == "Pad") return padded(node, std::move(places), ignored);
  if (node.op == "Transpose") {
    std::vector<size_t> axes;
    for (int64_t axis : node.attributes.get_ints("perm")) axes.push_back(static_cast<size_t>(axis));
    if (axes.size() != places.dims.size()) return std::nullopt;
    return transposed(places, axes);
  }
  if (!ops::keeps_order(ops::NodeView(graph, node))) return std::nullopt;
  const auto dims = dims_of_sample(graph, node.outputs.front());
  if (!dims) return std::nullopt;
  places.dims = *dims;
  return places;
}

/// Elements of the input's sample are numbered in row-major order with the batch axis in front.
Places places_of_input(const std::vector<int64_t>& dims, int batch_axis) {
  const auto front = static_cast<size_t>(batch_axis);
  Places stored{{dims[front]}, {}};
  for (size_t i = 0; i < dims.size(); ++i)
    if (i != front) stored.dims.push_back(dims[i]);
  stored.element.resize(static_cast<size_t>(
      std::accumulate(dims.begin(), dims.end(), int64_t{1}, [](int64_t a, int64_t b) { return a * b; })));
  std::iota(stored.element.begin(), stored.element.end(), int64_t{0});
  std::vector<size_t> axes;
  for (size_t i = 0; i < dims.size(); ++i) axes.push_back(i == front ? 0 : i < front ? i + 1 : i);
  return transposed(stored, axes);
}

/// The elements as ascending ranges, empty where they are all `all` elements. None where an element occurs twice, no
/// element comes from the input, or there are too many ranges.
std::optional<std::vector<wire::PositionRange>> ranges_of(std::vector<int64_t> elements, int64_t all) {
  std::erase(elements, kIgnored);
  std::ranges::sort(elements);
  if (std::ranges::adjacent_find(elements) != elements.end() || elements.empty()) return std::nullopt;
  std::vector<wire::PositionRange> ranges;
  for (int64_t element : elements) {
    if (!ranges.empty() && ranges.back().last == element) ++ranges.back().last;
    else ranges.push_back({element, element + 1});
  }
  if (ranges.size() > kMaxRanges) return std::nullopt;
  if (ranges.front() == wire::PositionRange{0, all}) ranges.clear();
  return ranges;
}

}  // namespace

std::optional<LabelPositions> label_positions(const Graph& graph, ValueId label, int64_t ignored) {
  std::vector<NodeId> path;
  while (graph.value(label).producer.valid()) {
    path.push_back(graph.value(label).producer);
    const Node& node = graph.node(path.back());
    if (node.inputs.empty() || !node.inputs.front().valid() || ir::is_floating(graph.value(label).type.dtype))
      return std::nullopt;
    label = node.inputs.front();
  }
  const auto input = std::ranges::find(graph.inputs(), label, &ir::Input::value);
  const auto dims = dims_of_sample(graph, label);
  if (input == graph.inputs().end() || ir::is_floating(graph.value(label).type.dtype) || !dims) return std::nullopt;
  Places places = places_of_input(*dims, graph.value(label).batch_axis);
  const int64_t all = std::ssize(places.element);
  for (size_t i = path.size(); i-- > 0;) {
    const Node& node = graph.node(path[i]);
    std::optional<Places> next = places_behind(graph, node, std::move(places), ignored);
    if (!next || dims_of_sample(graph, node.outputs.front()) != next->dims) return std::nullopt;
    places = std::move(*next);
  }
  auto counted = ranges_of(std::move(places.element), all);
  if (!counted) return std::nullopt;
  return LabelPositions{input->name, std::move(*counted)};
}

}  // namespace graphpipe::passes
