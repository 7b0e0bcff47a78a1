// NonZero, and the choice of lowering for nodes that read what a mask picks (frontend/selection.h).

#include "frontend/lower_selection.h"

#include <algorithm>
#include <numeric>

#include "ops/op_def.h"

namespace graphpipe::frontend {
namespace {

using ir::Dim;
using ir::Shape;
using ir::ValueId;

/// The coordinates of the nonzero elements of a constant mask, with fixed sizes.
Known coordinates_of(const Known& mask) {
  const size_t rank = mask.shape.size(), count = *known_count(mask.shape);
  std::vector<std::vector<Number>> found(rank);
  for (size_t i = 0; i < count; ++i) {
    if (mask.element(i).factor() == 0) continue;
    auto rest = static_cast<int64_t>(i);
    for (size_t axis = rank; axis-- > 0; rest /= mask.shape[axis].factor)
      found[axis].push_back(Number::of_whole(rest % mask.shape[axis].factor));
  }
  Known coordinates = Known::list({});
  coordinates.shape = {Dim::fixed(static_cast<int64_t>(rank)), Dim::fixed(static_cast<int64_t>(found[0].size()))};
  for (const std::vector<Number>& of_axis : found)
    coordinates.elements.insert(coordinates.elements.end(), of_axis.begin(), of_axis.end());
  return coordinates;
}

/// Handles a mask that does not depend on data; false if it does, or is too large. Exporters enumerate indices this
/// way: as the nonzero places of ones.
Result<bool> lower_known_non_zero(NodeContext& context) {
  const Known* mask = context.known(0);
  if (mask == nullptr || mask->shape.empty() || context.input(0).leaf) return false;
  if (known_count(mask->shape).value_or(0) > 0) {
    Binding binding;
    binding.known = coordinates_of(*mask);
    binding.type = {ir::DType::kInt64, binding.known->shape};
    context.lowering().bind(context.node().outputs[0], std::move(binding));
    return true;
  }
  if (!mask->uniform || mask->shape.size() != 1 || mask->elements[0].factor() == 0) return false;
  GP_TRY(const ValueId numbers, context.emit_one("Iota", {}, {{"shape", mask->shape}, {"to", std::string("i64")}}));
  GP_TRY_VOID(context.emit_outputs("Unsqueeze", {numbers}, {{"axes", std::vector<int64_t>{0}}}));
  return true;
}

/// All coordinates of the places: [rank of the mask, places].
Status lower_non_zero(NodeContext& context) {
  GP_TRY(const bool is_known, lower_known_non_zero(context));
  if (is_known) return Ok{};
  GP_TRY(const ValueId given, context.value(0));
  const ir::TensorType type = context.type(0);
  if (type.shape.empty())
    return context.problem(Code::kUnsupportedOp, "its mask is one number", "give the mask an axis");
  GP_TRY(const size_t index, selection_by(context, given));
  Selected selected{.selection = index, .axis = 1};
  for (size_t axis = 0; axis < type.shape.size(); ++axis) {
    Coordinate coordinate{.strides = std::vector<Number>(type.shape.size(), Number::of_whole(0))};
    coordinate.strides[axis] = Number::of_whole(1);
    selected.coordinates.push_back(std::move(coordinate));
  }
  const Dim places = picked_places(selected.selection, type.shape);
  return bind_selected(context, 0, {ir::DType::kInt64, {Dim::fixed(static_cast<int64_t>(type.shape.size())), places}},
                       {}, std::move(selected));
}

/// Rows 0 to the number of places: the source of masked_scatter.
Status lower_first_rows(NodeContext& context) {
  const Known* ends = context.known(2);
  const auto is_one_number = [&context](size_t input, int64_t number) {
    const Known* known = context.known(input);
    return known != nullptr && whole_numbers(*known) == std::vector<int64_t>{number};
  };
  const bool fits = context.rank(0) > 0 && ends != nullptr && ends->elements.size() == 1 &&
                    ends->elements[0].whole == 1 && is_one_number(1, 0) &&
                    (!context.has_input(3) || is_one_number(3, 0)) && (!context.has_input(4) || is_one_number(4, 1));
  if (!fits) return refuse_selection(context, "cuts by the number of places that a mask picks");
  const Number count = ends->elements[0];
  if (selection_of(count.power) >= context.lowering().selections().size())
    return refuse_selection(context, "cuts by a power of the batch that is too high");
  GP_TRY(const ValueId value, context.value(0));
  Shape shape = context.type(0).shape;
  shape[0] = {count.whole, count.power};
  return bind_selected(context, 0, {context.type(0).dtype, std::move(shape)}, value,
                       {.kind = Selected::Kind::kFirstRows, .selection = selection_of(count.power)});
}

/// x[mask] = rows, in files of the dynamo exporter: where PyTorch takes as many rows as there are places, they are
/// expanded to that number.
bool has_row_for_each_place(const Shape& rows, const Shape& target) {
  return rows.size() == target.size() && !rows.empty() && counts_places(target[0]) && rows[0].power == 1 &&
         std::equal(rows.begin() + 1, rows.end(), target.begin() + 1);
}

/// Expands a tensor without an axis of places to one row per place.
Status repeat_for_places(NodeContext& context) {
  const auto refusal = refuse_selection(context, "repeats a tensor for picked places in a form that is not supported");
  GP_TRY(const Shape target, context.dims(1, "target shape"));
  const auto at = std::ranges::find_if(target, [](Dim dim) { return counts_places(dim); });
  if (at == target.end() || at->factor != 1) return refusal;
  const size_t index = selection_of(at->power);
  if (index >= context.lowering().selections().size()) return refusal;
  const Selection& selection = context.lowering().selections()[index];
  const auto axis = static_cast<size_t>(at - target.begin());
  Shape from = context.type(0).shape;
  if (has_row_for_each_place(from, target)) {
    GP_TRY(const ValueId rows, context.value(0));
    return bind_selected(context, 0, {context.type(0).dtype, target}, rows,
                         {.kind = Selected::Kind::kFirstRows, .selection = index});
  }
  const std::optional<Shape> shape = broadcast(from, target);
  if (*at != picked_places(index, selection.box) || !shape || *shape != target) return refusal;
  GP_TRY(ValueId value, context.value(0));
  if (from.size() + axis >= target.size()) {
    // Its size along the places is 1.
    from.insert(from.begin() + static_cast<std::ptrdiff_t>(from.size() + axis - target.size()),
                selection.box.size() - 1, Dim::fixed(1));
    GP_TRY(const auto spread, context.emit("Reshape", {value}, {{"shape", from}}));
    value = spread[0];
  }
  Shape places(target.begin(), at);
  places.insert(places.end(), selection.box.begin(), selection.box.end());
  places.insert(places.end(), at + 1, target.end());
  GP_TRY(const auto repeated, context.emit("Expand", {value}, {{"shape", std::move(places)}}));
  return bind_selected(context, 0, {context.type(0).dtype, target}, repeated[0],
                       {.kind = Selected::Kind::kRows, .selection = index, .axis = axis});
}

/// Rows for all places as one list of elements.
Status flatten_first_rows(NodeContext& context) {
  GP_TRY(const Shape target, reshape_target(context));
  const Selected& selected = *selected_input(context, 0);
  const std::optional<Dim> count = ir::element_count(context.type(0).shape);
  if (target.size() != 1 || count != target[0])
    return refuse_selection(context, "reshapes rows for picked places in a form that is not supported");
  const ValueId rows = context.input(0).value;
  const std::optional<Dim> elements = ir::element_count(context.lowering().graph().value(rows).type.shape);
  if (!elements) return refuse_selection(context, "has too many rows for picked places");
  GP_TRY(const auto flat, context.emit("Reshape", {rows}, {{"shape", Shape{*elements}}}));
  return bind_selected(context, 0, {context.type(0).dtype, target}, flat[0], selected);
}

/// Equal numbers for each place, reshaped.
Status reshape_equal_numbers(NodeContext& context) {
  GP_TRY(const Shape target, reshape_target(context));
  Binding binding;
  binding.known = *context.known(0);
  binding.known->shape = target;
  binding.type = {binding.known->dtype, target};
  context.lowering().bind(context.node().outputs[0], std::move(binding));
  return Ok{};
}

Status lower_coordinates(NodeContext& context) {
  const std::string& op = context.node().op;
  const bool indexed = is_of(selected_input(context, 1), Selected::Kind::kCoordinates);
  if (indexed && selected_input(context, 0) == nullptr) {
    if (op == "Gather" || op == "GatherND") return gather_at_places(context);
    if (op == "ScatterND" || op == "ScatterElements") return scatter_at_places(context);
  }
  return move_coordinates(context);
}

}  // namespace

const Selected* selected_input(NodeContext& context, size_t i) {
  return context.has_input(i) && context.input(i).selected ? &*context.input(i).selected : nullptr;
}

bool is_of(const Selected* selected, Selected::Kind kind) { return selected != nullptr && selected->kind == kind; }

const Selected* rows_of(NodeContext& context, size_t i) {
  const Selected* selected = selected_input(context, i);
  return is_of(selected, Selected::Kind::kRows) ? selected : nullptr;
}

bool reads_selection(Lowering& lowering, const OnnxNode& node) {
  return std::ranges::any_of(node.inputs, [&](const std::string& name) {
    const Binding* input = name.empty() ? nullptr : lowering.find(name);
    if (input == nullptr) return false;
    if (input->selected || counts_places(input->type.shape)) return true;
    const bool by_number = node.op == "Slice" || node.op == "Expand";
    return by_number && input->known &&
           std::ranges::any_of(input->known->elements, [](const Number& n) { return counts_places(n); });
  });
}

Status lower_on_selection(NodeContext& context) {
  bool rows = false;
  for (size_t i = 0; i < context.node().inputs.size(); ++i) {
    const Selected* selected = selected_input(context, i);
    if (is_of(selected, Selected::Kind::kCoordinates)) return lower_coordinates(context);
    rows = rows || is_of(selected, Selected::Kind::kRows);
  }
  if (rows) return lower_picked_rows(context);
  const bool is_apart = context.has_input(0) && selected_input(context, 0) == nullptr;
  const std::string& op = context.node().op;
  if (op == "Slice" && is_apart) return lower_first_rows(context);
  if (op == "Reshape" && is_of(selected_input(context, 0), Selected::Kind::kFirstRows))
    return flatten_first_rows(context);
  if (op == "Reshape" && is_apart && context.known(0) != nullptr && context.known(0)->uniform)
    return reshape_equal_numbers(context);
  if (op == "Expand" && is_apart && !counts_places(context.type(0).shape)) return repeat_for_places(context);
  return refuse_selection(context, "computes with the number of places that a mask picks");
}

bool same_value(const ir::Graph& graph, ValueId a, ValueId b) {
  constexpr int kMaxPairs = 256;  // pairs of values to compare
  std::vector<std::pair<ValueId, ValueId>> open{{a, b}};
  for (int pairs = 0; !open.empty(); ++pairs) {
    const auto [one, other] = open.back();
    open.pop_back();
    if (one == other) continue;
    if (pairs == kMaxPairs || !one.valid() || !other.valid()) return false;
    const ir::NodeId first = graph.value(one).producer, second = graph.value(other).producer;
    if (!first.valid() || !second.valid()) return false;
    const ir::Node &made = graph.node(first), &also = graph.node(second);
    if (ops::find_op(made.op)->is_random || made.op != also.op || made.attributes != also.attributes ||
        made.inputs.size() != also.inputs.size() || made.outputs.size() != 1 || also.outputs.size() != 1)
      return false;
    for (size_t i = 0; i < made.inputs.size(); ++i) open.emplace_back(made.inputs[i], also.inputs[i]);
  }
  return true;
}

Result<size_t> selection_by(NodeContext& context, ValueId given) {
  std::vector<Selection>& selections = context.lowering().selections();
  const auto known = std::ranges::find_if(selections, [&](const Selection& selection) {
    return same_value(context.lowering().graph(), selection.given, given);
  });
  const auto index = static_cast<size_t>(known - selections.begin());
  if (known != selections.end()) return index;
  const ir::TensorType type = context.lowering().graph().value(given).type;
  ValueId mask = given;
  if (type.dtype != ir::DType::kBool) {
    GP_TRY(const auto truth, context.emit("Cast", {mask}, {{"to", std::string("bool")}}));
    mask = truth[0];
  }
  selections.push_back({mask, type.shape, given});
  return index;
}

Status note_count_of_mask(NodeContext& context) {
  const ir::Graph& graph = context.lowering().graph();
  Binding* sum = context.lowering().find(context.node().outputs[0]);
  const bool counts = sum != nullptr && sum->value.valid() && !ir::is_floating(sum->type.dtype) &&
                      std::ranges::all_of(sum->type.shape, [](Dim dim) { return dim == Dim::fixed(1); });
  if (!counts) return Ok{};
  // A sum over all elements of a mask, cast and in any shape.
  ValueId value = context.input(0).value;
  while (value.valid() && graph.value(value).type.dtype != ir::DType::kBool && graph.value(value).producer.valid()) {
    const ir::Node& node = graph.node(graph.value(value).producer);
    if (node.op != "Cast" && node.op != "Reshape") return Ok{};
    value = node.inputs[0];
  }
  while (value.valid() && graph.value(value).producer.valid() &&
         graph.node(graph.value(value).producer).op == "Reshape")
    value = graph.node(graph.value(value).producer).inputs[0];
  if (!value.valid() || graph.value(value).type.dtype != ir::DType::kBool || graph.value(value).type.shape.empty())
    return Ok{};
  GP_TRY(const size_t index, selection_by(context, value));
  const Dim places = picked_places(index, graph.value(value).type.shape);
  Known known = Known::scalar(sum->type.dtype, Number::of_dim(places));
  known.shape = sum->type.shape;
  sum->known = std::move(known);
  return Ok{};
}

Result<ValueId> keep_picked(NodeContext& context, const Selection& selection, ValueId value, size_t behind,
                            double otherwise) {
  ValueId mask = selection.mask;
  if (behind > 0) {
    std::vector<int64_t> axes(behind);
    std::iota(axes.begin(), axes.end(), static_cast<int64_t>(selection.box.size()));
    GP_TRY(const auto deeper, context.emit("Unsqueeze", {mask}, {{"axes", std::move(axes)}}));
    mask = deeper[0];
  }
  GP_TRY(const ValueId fill, context.scalar(otherwise, context.lowering().graph().value(value).type.dtype));
  GP_TRY(const auto kept, context.emit("Where", {mask, value, fill}, {}));
  return kept[0];
}

namespace {

/// The node that computes the mask behind a node's input; empty if there is none, or the mask is an input.
ModelText origin_of_mask(NodeContext context) {
  Lowering& lowering = context.lowering();
  for (const std::string& name : context.node().inputs) {
    const Binding* input = name.empty() ? nullptr : lowering.find(name);
    if (input == nullptr || !input->selected) continue;
    const ir::NodeId producer =
        lowering.graph().value(lowering.selections()[input->selected->selection].given).producer;
    if (producer.valid() && !lowering.graph().node(producer).origins.empty())
      return lowering.graph().node(producer).origins.front();
  }
  return {};
}

/// Whether rows that the file sees as `shape` have the axes of the box in place of their axis of places.
bool has_places_of(const Shape& places, const Shape& shape, const Selected& selected, const Shape& box) {
  if (selected.axis >= shape.size() || selected.outer > selected.axis || selected.outer >= box.size()) return false;
  const size_t first = selected.axis - selected.outer;
  if (first + box.size() > places.size()) return false;
  const auto begin = places.begin() + static_cast<std::ptrdiff_t>(first);
  const auto end = begin + static_cast<std::ptrdiff_t>(box.size());
  if (!std::equal(box.begin(), box.end(), begin)) return false;
  if (selected.inner > 0) return shape.size() == 1 && first == 0 && places.size() == box.size() + selected.inner;
  return std::equal(places.begin(), begin, shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(first)) &&
         std::equal(end, places.end(), shape.begin() + static_cast<std::ptrdiff_t>(selected.axis) + 1, shape.end());
}

}  // namespace

Diagnostic refuse_selection(const NodeContext& context, std::string_view what) {
  const ModelText mask = origin_of_mask(context);
  return context.problem(
      Code::kUnsupportedOp, mask.raw().empty() ? std::string(what) : text(what, " (the mask of ", quoted(mask), ")"),
      "only look-ups, element-wise operators, products with weights, reductions and scatters of what "
      "a mask picks are supported: write x[mask] as torch.where or as a product with the mask");
}

Status bind_selected(NodeContext& context, size_t output, ir::TensorType type, ValueId value, Selected selected) {
  if (!context.has_output(output)) return Ok{};
  if (selected.kind == Selected::Kind::kRows &&
      !has_places_of(context.lowering().graph().value(value).type.shape, type.shape, selected,
                     context.lowering().selections()[selected.selection].box))
    return refuse_selection(context, "makes something without the places that a mask picks");
  Binding binding;
  binding.type = std::move(type);
  binding.value = value;
  binding.selected = std::move(selected);
  context.lowering().bind(context.node().outputs[output], std::move(binding));
  return Ok{};
}

std::vector<HandlerEntry> selection_handlers() { return {{"NonZero", lower_non_zero}}; }

}  // namespace graphpipe::frontend
