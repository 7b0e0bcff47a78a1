#include "frontend/written_part.h"

#include <algorithm>
#include <iterator>

#include "frontend/known.h"

namespace graphpipe::frontend {
namespace {

using ir::Dim;
using ir::Shape;
using ir::ValueId;

const Dim kOne = Dim::fixed(1);
constexpr int64_t kMaxPlace = int64_t{1} << 50;
/// Rows of an axis that are counted out in a constant: more take as long to look through as a hostile file likes.
constexpr int64_t kMaxCounted = 1 << 16;

/// What a coordinate counts along its own axis: from `first` on, one after the other.
struct Counted {
  int64_t first = 0;
  Dim count;
};

/// Follows a coordinate back to where it is counted.
class PlaceCounter {
 public:
  /// `axis` of the value's shape is that along which it counts.
  PlaceCounter(const ir::Graph& graph, ValueId value, size_t axis) : graph_(graph), value_(value), axis_(axis) {}

  std::optional<Counted> counted() {
    const Dim count = shape()[axis_];
    while (const ir::Node* const node = producer()) {
      if (node->op == "Iota") return of_iota(*node, count);
      if (node->op == "Full") return of_one(node->attributes.get_double("value", 0), count);
      const bool moved = node->op == "Expand" ? before_expand(node->inputs[0]) : before_reshape(*node);
      if (!moved) return std::nullopt;
    }
    return of_constant(count);
  }

 private:
  const Shape& shape() const { return graph_.value(value_).type.shape; }
  const ir::Node* producer() const {
    const ir::NodeId id = graph_.value(value_).producer;
    return id.valid() ? &graph_.node(id) : nullptr;
  }

  bool before_expand(ValueId input) {
    const size_t added = shape().size() - graph_.value(input).type.shape.size();
    if (axis_ < added || graph_.value(input).type.shape[axis_ - added] != shape()[axis_]) return false;
    axis_ -= added;
    value_ = input;
    return true;
  }

  /// One that only adds or removes axes of size 1. The axis itself may be one of those that it adds.
  bool before_reshape(const ir::Node& node) {
    if (node.op != "Reshape" && node.op != "Unsqueeze" && node.op != "Squeeze") return false;
    const auto wide = [](const Shape& shape) {
      Shape dims;
      std::ranges::copy_if(shape, std::back_inserter(dims), [](Dim dim) { return dim != kOne; });
      return dims;
    };
    const Shape& to = shape();
    const Shape& from = graph_.value(node.inputs[0]).type.shape;
    if (from.empty() || wide(from) != wide(to)) return false;
    size_t wider = static_cast<size_t>(std::count_if(to.begin(), to.begin() + static_cast<std::ptrdiff_t>(axis_),
                                                     [](Dim dim) { return dim != kOne; }));
    const bool is_one = to[axis_] == kOne;
    size_t axis = 0;
    // Among axes of size 1 any will do: the coordinate is the same along all of them.
    for (; axis < from.size(); ++axis)
      if (is_one ? from[axis] == kOne : (from[axis] != kOne && wider-- == 0)) break;
    if (axis == from.size()) return false;
    axis_ = axis;
    value_ = node.inputs[0];
    return true;
  }

  std::optional<Counted> of_iota(const ir::Node& node, Dim count) const {
    const double first = node.attributes.get_double("start", 0);
    if (shape() != Shape{count} || node.attributes.get_double("delta", 1) != 1 || !(first >= 0 && first <= kMaxPlace))
      return std::nullopt;
    return Counted{static_cast<int64_t>(first), count};
  }

  static std::optional<Counted> of_one(double place, Dim count) {
    if (count != kOne || !(place >= 0 && place <= kMaxPlace)) return std::nullopt;
    return Counted{static_cast<int64_t>(place), count};
  }

  std::optional<Counted> of_constant(Dim count) const {
    // One number for each of its rows, and along no other axis.
    if (ir::element_count(shape()) != count || !count.is_fixed() || count.factor < 1 || count.factor > kMaxCounted)
      return std::nullopt;
    for (const ir::ParamId id : graph_.param_ids()) {
      const ir::Param& param = graph_.param(id);
      const auto* data = std::get_if<ir::InlineData>(&param.data);
      if (param.value != value_ || data == nullptr) continue;
      const std::optional<Known> known = decode_known(graph_.value(value_).type.dtype, shape(), data->bytes);
      if (!known) return std::nullopt;
      const int64_t first = known->elements.front().whole;
      if (first > kMaxPlace) return std::nullopt;
      for (size_t i = 0; i < known->elements.size(); ++i)
        if (known->elements[i] != Number::of_whole(first + static_cast<int64_t>(i))) return std::nullopt;
      return first < 0 ? std::nullopt : std::optional(Counted{first, count});
    }
    return std::nullopt;
  }

  const ir::Graph& graph_;
  ValueId value_;
  size_t axis_;
};

}  // namespace

std::optional<std::vector<WrittenRows>> written_part(const ir::Graph& graph, ValueId places, const Shape& shape) {
  const size_t rank = graph.value(places).type.shape.size();
  if (rank < 2 || rank - 1 > shape.size() ||
      graph.value(places).type.shape.back() != Dim::fixed(static_cast<int64_t>(rank) - 1))
    return std::nullopt;
  std::vector<ValueId> coordinates{places};
  if (rank > 2) {
    const ir::NodeId joined = graph.value(places).producer;
    if (!joined.valid() || graph.node(joined).op != "Concat" || graph.node(joined).inputs.size() != rank - 1)
      return std::nullopt;
    coordinates = graph.node(joined).inputs;  // along the last axis, which is as long
  }
  std::vector<WrittenRows> part;
  for (size_t axis = 0; axis < coordinates.size(); ++axis) {
    if (graph.value(coordinates[axis]).type.shape.back() != kOne) return std::nullopt;
    const std::optional<Counted> rows = PlaceCounter(graph, coordinates[axis], axis).counted();
    if (!rows) return std::nullopt;
    if (rows->first == 0 && rows->count == shape[axis]) continue;
    if (!rows->count.is_fixed() || !shape[axis].is_fixed() || rows->count.factor > shape[axis].factor ||
        rows->first > shape[axis].factor - rows->count.factor)
      return std::nullopt;
    part.push_back({static_cast<int64_t>(axis), rows->first, rows->count.factor});
  }
  return part;
}

}  // namespace graphpipe::frontend
