#include "passes/affine_index.h"

#include <algorithm>
#include <cstring>

#include "ops/op_def.h"

namespace graphpipe::passes {
namespace {

using ir::Dim;
using ir::Graph;
using ir::Node;
using ir::Shape;
using ir::ValueId;

constexpr int64_t kMaxNumber = int64_t{1} << 48;

bool is_index(ir::DType dtype) { return dtype == ir::DType::kInt64 || dtype == ir::DType::kInt32; }
bool is_small(int64_t number) { return number > -kMaxNumber && number < kMaxNumber; }

/// Canonical form: the stride of every axis of size 1 is 0.
AffineIndex normal(AffineIndex index, const Shape& shape) {
  for (size_t i = 0; i < shape.size(); ++i)
    if (shape[i] == Dim::fixed(1)) index.strides[i] = 0;
  return index;
}

/// The formula after a reshape that only adds or removes axes of size 1; none where it merges or splits other axes.
std::optional<AffineIndex> moved(const AffineIndex& from, const Shape& before, const Shape& after) {
  AffineIndex result{from.offset, std::vector<int64_t>(after.size(), 0)};
  size_t i = 0;
  for (size_t j = 0; j < after.size(); ++j) {
    if (after[j] == Dim::fixed(1)) continue;
    while (i < before.size() && before[i] == Dim::fixed(1)) ++i;
    if (i == before.size() || before[i] != after[j]) return std::nullopt;
    result.strides[j] = from.strides[i++];
  }
  return result;
}

/// The strides after broadcasting to `rank` axes: the new leading axes have stride 0.
std::vector<int64_t> broadcast_strides(const AffineIndex& from, size_t rank) {
  std::vector<int64_t> strides(rank - from.strides.size(), 0);
  strides.insert(strides.end(), from.strides.begin(), from.strides.end());
  return strides;
}

bool is_constant(const AffineIndex& index) {
  return std::all_of(index.strides.begin(), index.strides.end(), [](int64_t stride) { return stride == 0; });
}

/// The elements of a dense little-endian integer tensor.
std::vector<int64_t> elements_of(const std::string& bytes, ir::DType dtype) {
  const size_t width = dtype == ir::DType::kInt64 ? 8 : 4;
  std::vector<int64_t> elements(bytes.size() / width);
  for (size_t i = 0; i < elements.size(); ++i) {
    int32_t narrow = 0;
    if (width == 8) std::memcpy(&elements[i], bytes.data() + i * 8, 8);
    else std::memcpy(&narrow, bytes.data() + i * 4, 4), elements[i] = narrow;
  }
  return elements;
}

/// The formula that gives these elements, if there is one. Each stride is the difference between the first element and
/// its neighbour along the axis; then every element is checked. 5 7 9 6 8 10 of shape [2, 3] is 5 + i + 2 j.
/// Needs: as many elements as the shape has, at least one.
std::optional<AffineIndex> fit(const std::vector<int64_t>& elements, const Shape& shape) {
  AffineIndex index{elements[0], std::vector<int64_t>(shape.size(), 0)};
  size_t inner = 1;
  for (size_t axis = shape.size(); axis-- > 0;) {
    const auto size = static_cast<size_t>(shape[axis].factor);
    if (size > 1) index.strides[axis] = elements[inner] - elements[0];
    inner *= size;
  }
  for (size_t k = 0; k < elements.size(); ++k) {
    size_t rest = k;
    int64_t expected = index.offset;
    for (size_t axis = shape.size(); axis-- > 0;) {
      const auto size = static_cast<size_t>(shape[axis].factor);
      expected += index.strides[axis] * static_cast<int64_t>(rest % size);
      rest /= size;
    }
    if (elements[k] != expected) return std::nullopt;
  }
  return index;
}

}  // namespace

const AffineIndex* AffineIndices::find(const Graph& graph, ValueId value) {
  extend(graph);
  return known_[value] ? &*known_[value] : nullptr;
}

void AffineIndices::extend(const Graph& graph) {
  known_.resize(graph.value_count());
  for (; params_ < graph.param_count(); ++params_) note_param(graph, graph.param(ir::ParamId(params_)));
  for (; nodes_ < graph.node_count(); ++nodes_) {
    const Node& node = graph.node(ir::NodeId(nodes_));
    if (node.outputs.size() != 1 || !is_index(graph.value(node.outputs[0]).type.dtype)) continue;
    std::optional<AffineIndex> index = formula(graph, node);
    const auto small = [](const AffineIndex& made) {
      return is_small(made.offset) && std::all_of(made.strides.begin(), made.strides.end(), is_small);
    };
    if (index && small(*index)) known_[node.outputs[0]] = normal(*index, graph.value(node.outputs[0]).type.shape);
  }
}

void AffineIndices::note_param(const Graph& graph, const ir::Param& param) {
  const ir::TensorType& type = graph.value(param.value).type;
  if (!is_index(type.dtype)) return;
  AffineIndex index{0, std::vector<int64_t>(type.shape.size(), 0)};
  if (const auto* filled = std::get_if<ir::FilledData>(&param.data)) {
    if (!(filled->value > -1e14 && filled->value < 1e14)) return;
    index.offset = static_cast<int64_t>(filled->value);
  } else if (const auto* stored = std::get_if<ir::InlineData>(&param.data)) {
    const std::vector<int64_t> elements = elements_of(stored->bytes, type.dtype);
    const std::optional<Dim> count = ir::element_count(type.shape);
    const bool whole = count && *count == Dim::fixed(static_cast<int64_t>(elements.size())) && !elements.empty();
    if (!whole || !std::all_of(elements.begin(), elements.end(), is_small)) return;
    std::optional<AffineIndex> fitted = fit(elements, type.shape);
    if (!fitted) return;
    index = std::move(*fitted);
  } else {
    return;
  }
  known_[param.value] = std::move(index);
}

std::optional<AffineIndex> AffineIndices::sum(const Graph& graph, const Node& node, int64_t sign) const {
  const std::optional<AffineIndex>&a = known_[node.inputs[0]], &b = known_[node.inputs[1]];
  if (!a || !b) return std::nullopt;
  const size_t rank = graph.value(node.outputs[0]).type.shape.size();
  AffineIndex result{a->offset + sign * b->offset, broadcast_strides(*a, rank)};
  const std::vector<int64_t> other = broadcast_strides(*b, rank);
  for (size_t i = 0; i < rank; ++i) result.strides[i] += sign * other[i];
  return result;
}

std::optional<AffineIndex> AffineIndices::product(const Graph& graph, const Node& node) const {
  const std::optional<AffineIndex>*a = &known_[node.inputs[0]], *b = &known_[node.inputs[1]];
  if (!*a || !*b) return std::nullopt;
  if (!is_constant(**b)) std::swap(a, b);
  if (!is_constant(**b)) return std::nullopt;
  const int64_t factor = (**b).offset;
  AffineIndex result{0, broadcast_strides(**a, graph.value(node.outputs[0]).type.shape.size())};
  if (__builtin_mul_overflow((**a).offset, factor, &result.offset)) return std::nullopt;
  for (int64_t& stride : result.strides)
    if (__builtin_mul_overflow(stride, factor, &stride)) return std::nullopt;
  return result;
}

std::optional<AffineIndex> AffineIndices::formula(const Graph& graph, const Node& node) const {
  const Shape& shape = graph.value(node.outputs[0]).type.shape;
  if (node.op == "Iota") {
    const double start = node.attributes.get_double("start", 0), delta = node.attributes.get_double("delta", 1);
    if (!(start > -1e14 && start < 1e14 && delta > -1e14 && delta < 1e14)) return std::nullopt;
    return AffineIndex{static_cast<int64_t>(start), {static_cast<int64_t>(delta)}};
  }
  if (node.inputs.empty() || !node.inputs[0].valid()) return std::nullopt;
  if (node.op == "Add" || node.op == "Sub") return sum(graph, node, node.op == "Add" ? 1 : -1);
  if (node.op == "Mul") return product(graph, node);
  const std::optional<AffineIndex>& from = known_[node.inputs[0]];
  if (!from) return std::nullopt;
  const Shape& before = graph.value(node.inputs[0]).type.shape;
  if (node.op == "Expand") return AffineIndex{from->offset, broadcast_strides(normal(*from, before), shape.size())};
  if (node.op == "Cast" || node.op == "Identity") return from;
  const bool reshapes = ops::dependence_of(node.op) == ops::Dependence::kSameOrder;
  return reshapes ? moved(*from, before, shape) : std::nullopt;
}

}  // namespace graphpipe::passes
