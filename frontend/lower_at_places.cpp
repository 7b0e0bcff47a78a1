// Look-ups and scatters at the places that a mask picks.

#include <algorithm>
#include <numeric>

#include "frontend/lower_selection.h"

namespace graphpipe::frontend {
namespace {

using ir::Dim;
using ir::Shape;
using ir::ValueId;

/// The axes of a tensor that are indexed by coordinates, each expressed in axes of the box.
struct Numbering {
  /// The tensor's shape with each of these axes split accordingly.
  Shape split;
  /// Axes of the box, in the tensor's order; distinct.
  std::vector<size_t> axes;
  /// Axes of the box that no coordinate uses; ascending.
  std::vector<int64_t> missing;
};

Result<Numbering> number_axes(NodeContext& context, const Shape& shape, size_t first,
                              const std::vector<Coordinate>& coordinates, const Shape& box) {
  Numbering result{.split = Shape(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(first))};
  for (size_t i = 0; i < coordinates.size(); ++i) {
    const auto axes = numbered_axes(coordinates[i], box, shape[first + i]);
    if (!axes)
      return refuse_selection(
          context, text("its coordinates are not those of axis ", first + i, ", or the mask has another size"));
    for (const size_t axis : *axes) {
      if (std::ranges::find(result.axes, axis) != result.axes.end())
        return refuse_selection(context, "reads or writes where two coordinates are equal");
      result.axes.push_back(axis);
      result.split.push_back(box[axis]);
    }
  }
  result.split.insert(result.split.end(), shape.begin() + static_cast<std::ptrdiff_t>(first + coordinates.size()),
                      shape.end());
  for (size_t axis = 0; axis < box.size(); ++axis)
    if (std::ranges::find(result.axes, axis) == result.axes.end()) result.missing.push_back(static_cast<int64_t>(axis));
  return result;
}

Result<ValueId> reshaped(NodeContext& context, ValueId value, Shape shape) {
  if (context.lowering().graph().value(value).type.shape == shape) return value;
  GP_TRY(const auto made, context.emit("Reshape", {value}, {{"shape", std::move(shape)}}));
  return made[0];
}

/// Permutes axes first, first + 1, ... into the order given by `order`; the others stay.
Result<ValueId> ordered(NodeContext& context, ValueId value, size_t first, const std::vector<size_t>& order) {
  if (std::ranges::is_sorted(order)) return value;
  std::vector<int64_t> perm(context.lowering().graph().value(value).type.shape.size());
  std::iota(perm.begin(), perm.end(), 0);
  for (size_t i = 0; i < order.size(); ++i) perm[first + i] = static_cast<int64_t>(first + order[i]);
  GP_TRY(const auto made, context.emit("Transpose", {value}, {{"perm", std::move(perm)}}));
  return made[0];
}

/// The rank of each index among all of them: [4, 9, 2] -> [1, 2, 0].
std::vector<size_t> ranks_of(const std::vector<size_t>& axes) {
  std::vector<size_t> ranks;
  for (const size_t axis : axes)
    ranks.push_back(static_cast<size_t>(std::ranges::count_if(axes, [axis](size_t other) { return other < axis; })));
  return ranks;
}

std::vector<size_t> inverse_of(const std::vector<size_t>& order) {
  std::vector<size_t> inverse(order.size());
  for (size_t i = 0; i < order.size(); ++i) inverse[order[i]] = i;
  return inverse;
}

/// `data` at the places, from its axis `first` on, for each place of the box.
Result<ValueId> at_places(NodeContext& context, size_t first, const Selected& selected) {
  const Selection selection = context.lowering().selections()[selected.selection];
  GP_TRY(ValueId value, context.value(0));
  GP_TRY(const Numbering numbering,
         number_axes(context, context.type(0).shape, first, selected.coordinates, selection.box));
  GP_TRY(value, reshaped(context, value, numbering.split));
  GP_TRY(value, ordered(context, value, first, inverse_of(ranks_of(numbering.axes))));
  if (!numbering.missing.empty()) {
    std::vector<int64_t> axes = numbering.missing;
    for (int64_t& axis : axes) axis += static_cast<int64_t>(first);
    GP_TRY(const auto spread, context.emit("Unsqueeze", {value}, {{"axes", std::move(axes)}}));
    value = spread[0];
  }
  const size_t behind = context.rank(0) - first - selected.coordinates.size();
  const bool is_float = ir::is_floating(context.type(0).dtype);
  return keep_picked(context, selection, value, behind, is_float ? 1 : 0);
}

/// The rows of `source`, [rows of a sample * B, ...], in order at the places of each sample, `data` elsewhere:
/// masked_scatter. A sample whose number of places differs from its number of rows ends the run: across the samples of
/// a batch such rows would belong to other samples than within a micro-batch.
Status fill_places(NodeContext& context, const Selection& selection, ValueId data, ValueId source) {
  const ir::Graph& graph = context.lowering().graph();
  const Shape shape = graph.value(data).type.shape, from = graph.value(source).type.shape;
  const std::optional<Dim> places = ir::element_count(selection.box);
  const bool fits = selection.box[0].power == 1 && places && places->power == 1 && from[0].power == 1 &&
                    shape.size() == selection.box.size() && from.size() == 1;
  if (!fits) return refuse_selection(context, "fills picked places from rows that are not numbered within each sample");
  const int64_t count = from[0].factor;
  const auto emit = [&](std::string_view op, std::vector<ValueId> inputs,
                        ir::Attributes attributes) -> Result<ValueId> {
    GP_TRY(const auto made, context.emit(op, std::move(inputs), std::move(attributes)));
    return made[0];
  };
  const Shape per_sample{Dim::batch(), Dim::fixed(places->factor)};
  GP_TRY(const ValueId mask, reshaped(context, selection.mask, per_sample));
  GP_TRY(const ValueId rows, reshaped(context, source, {Dim::batch(), Dim::fixed(count)}));
  GP_TRY(const ValueId index, emit("NumberPlaces", {mask}, {{"elements", count}}));
  GP_TRY(ValueId found, emit("GatherElements", {rows, index}, {{"axis", int64_t{1}}}));
  GP_TRY(found, reshaped(context, found, shape));
  return context.emit_outputs("Where", {selection.mask, found, data}, {});
}

struct Joining {
  std::string_view reduce, with;
  double neutral = 0;
};

std::optional<Joining> joining_of(std::string_view reduction) {
  if (reduction == "add" || reduction == "none") return Joining{"ReduceSum", "Add", 0};
  if (reduction == "max") return Joining{"ReduceMax", "Max", -kInfinity};
  if (reduction == "min") return Joining{"ReduceMin", "Min", kInfinity};
  return std::nullopt;
}

/// Whether the mask of `spread` is that of `narrow`, repeated along further trailing axes.
bool repeats_mask(const ir::Graph& graph, const Selection& spread, const Selection& narrow) {
  ValueId value = spread.mask;
  while (!same_value(graph, value, narrow.mask)) {
    const ir::NodeId producer = graph.value(value).producer;
    if (!producer.valid()) return false;
    const ir::Node& node = graph.node(producer);
    if (node.op != "Expand" && node.op != "Unsqueeze") return false;
    value = node.inputs[0];
  }
  return spread.box.size() > narrow.box.size() && std::equal(narrow.box.begin(), narrow.box.end(), spread.box.begin());
}

/// What is written, [box..., rest...]: rows, or one number everywhere.
Result<ValueId> updates_at_places(NodeContext& context, const Selected& selected, const Shape& box, const Shape& rest) {
  const Selected* updates = selected_input(context, 2);
  if (is_of(updates, Selected::Kind::kRows) && updates->selection == selected.selection && updates->axis == 0 &&
      updates->outer == 0 && updates->inner == 0)
    return context.input(2).value;
  const std::vector<Selection>& selections = context.lowering().selections();
  if (is_of(updates, Selected::Kind::kRows) && updates->axis == 0 && updates->outer == 0 && rest.empty() &&
      repeats_mask(context.lowering().graph(), selections[selected.selection], selections[updates->selection]))
    return reshaped(context, context.input(2).value, box);
  const Known* known = context.known(2);
  if (updates != nullptr || known == nullptr || !known->uniform || !known->elements[0].is_fixed())
    return refuse_selection(context, "writes at picked places what was not read at them");
  Shape shape = box;
  shape.insert(shape.end(), rest.begin(), rest.end());
  return context.filled(known->elements[0].factor(), {known->dtype, std::move(shape)});
}

/// Places that differ along axes without a coordinate are written to the same element: their updates are combined. If
/// ONNX leaves the order open (reduction none), at most one is picked, or the sum is what PyTorch's index_add means.
Status write_at_places(NodeContext& context, const std::vector<Coordinate>& coordinates, const Selected& selected) {
  const Selection selection = context.lowering().selections()[selected.selection];
  const Shape shape = context.type(0).shape;
  const std::string reduction = context.string_attribute("reduction", "none");
  const std::optional<Joining> joining = joining_of(reduction);
  if (!joining) return refuse_selection(context, "multiplies by updates at picked places");
  if (reduction != "add" && reduction != "none" && !ir::is_floating(context.type(0).dtype))
    return refuse_selection(context, "takes extremes of integers at picked places");
  GP_TRY(const Numbering numbering, number_axes(context, shape, 0, coordinates, selection.box));
  GP_TRY(const ValueId data, context.value(0));
  if (is_of(selected_input(context, 2), Selected::Kind::kFirstRows)) {
    const bool all = numbering.missing.empty() && std::ranges::is_sorted(numbering.axes) && reduction == "none";
    if (!all) return refuse_selection(context, "fills picked places in a form that is not supported");
    return fill_places(context, selection, data, context.input(2).value);
  }
  const Shape rest(shape.begin() + static_cast<std::ptrdiff_t>(coordinates.size()), shape.end());
  GP_TRY(ValueId value, updates_at_places(context, selected, selection.box, rest));
  GP_TRY(value, keep_picked(context, selection, value, rest.size(), joining->neutral));
  const ir::Attributes over_missing{{"axes", numbering.missing}, {"keepdims", int64_t{0}}};
  const auto into_data = [&](ValueId part, std::string_view reduce, Shape target) -> Result<ValueId> {
    if (!numbering.missing.empty()) {
      GP_TRY(const auto joined, context.emit(reduce, {part}, over_missing));
      part = joined[0];
    }
    GP_TRY(part, ordered(context, part, 0, ranks_of(numbering.axes)));
    return reshaped(context, part, std::move(target));
  };
  GP_TRY(value, into_data(value, joining->reduce, shape));
  if (reduction != "none") return context.emit_outputs(joining->with, {data, value}, {});
  GP_TRY(const auto picks, context.emit("Cast", {selection.mask}, {{"to", std::string("i32")}}));
  Shape places(shape.begin(), shape.end() - static_cast<std::ptrdiff_t>(rest.size()));
  places.resize(shape.size(), Dim::fixed(1));
  GP_TRY(const ValueId any, into_data(picks[0], "ReduceMax", std::move(places)));
  GP_TRY(const auto is_written, context.emit("Cast", {any}, {{"to", std::string("bool")}}));
  return context.emit_outputs("Where", {is_written[0], value, data}, {});
}

}  // namespace

Status gather_at_places(NodeContext& context) {
  const Selected selected = *selected_input(context, 1);
  const Shape data = context.type(0).shape, indices = context.type(1).shape;
  const bool by_tuple = context.node().op == "GatherND";
  size_t first = 0, named = 1;
  if (by_tuple) {
    named = static_cast<size_t>(indices.back().factor);
    const bool fits = context.int_attribute("batch_dims", 0) == 0 && indices.size() == 2 && selected.axis == 0 &&
                      selected.coordinates.size() == named && named <= data.size();
    if (!fits) return refuse_selection(context, "reads at picked places in a form that is not supported");
  } else {
    GP_TRY(const int64_t axis, context.axis(context.int_attribute("axis", 0), context.rank(0)));
    first = static_cast<size_t>(axis);
    if (indices.size() != 1 || selected.coordinates.size() != 1)
      return refuse_selection(context, "reads at picked places in a form that is not supported");
  }
  GP_TRY(const ValueId value, at_places(context, first, selected));
  Shape shape(data.begin(), data.begin() + static_cast<std::ptrdiff_t>(first));
  shape.push_back(by_tuple ? indices[0] : indices[selected.axis]);
  shape.insert(shape.end(), data.begin() + static_cast<std::ptrdiff_t>(first + named), data.end());
  return bind_selected(context, 0, {context.type(0).dtype, std::move(shape)}, value,
                       {.kind = Selected::Kind::kRows, .selection = selected.selection, .axis = first});
}

Status scatter_at_places(NodeContext& context) {
  const Selected selected = *selected_input(context, 1);
  const Shape data = context.type(0).shape, indices = context.type(1).shape;
  const auto refusal = refuse_selection(context, "writes at picked places in a form that is not supported");
  if (selected.axis != 0 || selected.coordinates.empty()) return refusal;
  if (context.node().op == "ScatterND") {
    const bool fits = indices.size() == 2 &&
                      indices[1] == Dim::fixed(static_cast<int64_t>(selected.coordinates.size())) &&
                      selected.coordinates.size() <= data.size();
    return fits ? write_at_places(context, selected.coordinates, selected) : Status(refusal);
  }
  const bool rows = context.int_attribute("axis", 0) == 0 && selected.coordinates.size() == 1 &&
                    indices.size() == data.size() && std::equal(indices.begin() + 1, indices.end(), data.begin() + 1);
  return rows ? write_at_places(context, selected.coordinates, selected) : Status(refusal);
}

}  // namespace graphpipe::frontend
