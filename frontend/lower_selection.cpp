// NonZero, and which lowering a node takes that reads what a mask picks (frontend/selection.h).

#include "frontend/lower_selection.h"

#include <algorithm>
#include <numeric>

namespace graphpipe::frontend {
namespace {

using ir::Dim;
using ir::Shape;
using ir::ValueId;

/// All coordinates of the places: [rank of the mask, places].
Status lower_non_zero(NodeContext& context) {
  GP_TRY(const ValueId given, context.value(0));
  const ir::TensorType type = context.type(0);
  if (type.shape.empty())
    return context.problem(Code::kUnsupportedOp, "its mask is one number", "give the mask an axis");
  std::vector<Selection>& selections = context.lowering().selections();
  // One mask picks the same places each time.
  const auto known = std::ranges::find(selections, given, &Selection::given);
  Selected selected{.selection = static_cast<size_t>(known - selections.begin()), .axis = 1};
  if (known == selections.end()) {
    ValueId mask = given;
    if (type.dtype != ir::DType::kBool) {
      GP_TRY(const auto truth, context.emit("Cast", {mask}, {{"to", std::string("bool")}}));
      mask = truth[0];
    }
    selections.push_back({mask, type.shape, given});
  }
  for (size_t axis = 0; axis < type.shape.size(); ++axis) {
    Coordinate coordinate{.strides = std::vector<Number>(type.shape.size(), Number::of_whole(0))};
    coordinate.strides[axis] = Number::of_whole(1);
    selected.coordinates.push_back(std::move(coordinate));
  }
  const Dim places = picked_places(selected.selection, type.shape);
  bind_selected(context, 0, {ir::DType::kInt64, {Dim::fixed(static_cast<int64_t>(type.shape.size())), places}}, {},
                std::move(selected));
  return Ok{};
}

/// Rows 0 to the number of places: the source of masked_scatter.
Status lower_first_rows(NodeContext& context) {
  const Known* ends = context.known(2);
  const auto is_one_number = [&context](size_t input, int64_t number) {
    const Known* known = context.known(input);
    return known != nullptr && whole_numbers(*known) == std::vector<int64_t>{number};
  };
  const bool fits = ends != nullptr && ends->elements.size() == 1 && ends->elements[0].whole == 1 &&
                    is_one_number(1, 0) && (!context.has_input(3) || is_one_number(3, 0)) &&
                    (!context.has_input(4) || is_one_number(4, 1));
  if (!fits) return refuse_selection(context, "cuts by the number of places that a mask picks");
  const Number count = ends->elements[0];
  GP_TRY(const ValueId value, context.value(0));
  Shape shape = context.type(0).shape;
  shape[0] = {count.whole, count.power};
  bind_selected(context, 0, {context.type(0).dtype, std::move(shape)}, value,
                {.kind = Selected::Kind::kFirstRows, .selection = selection_of(count.power)});
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
  if (context.node().op == "Slice" && selected_input(context, 0) == nullptr) return lower_first_rows(context);
  return refuse_selection(context, "computes with the number of places that a mask picks");
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

Diagnostic refuse_selection(const NodeContext& context, std::string_view what) {
  return context.problem(
      Code::kUnsupportedOp, std::string(what),
      "only look-ups, element-wise operators, products with weights, reductions and scatters of what "
      "a mask picks are supported: write x[mask] as torch.where or as a product with the mask");
}

void bind_selected(NodeContext& context, size_t output, ir::TensorType type, ValueId value, Selected selected) {
  if (!context.has_output(output)) return;
  Binding binding;
  binding.type = std::move(type);
  binding.value = value;
  binding.selected = std::move(selected);
  context.lowering().bind(context.node().outputs[output], std::move(binding));
}

std::vector<HandlerEntry> selection_handlers() { return {{"NonZero", lower_non_zero}}; }

}  // namespace graphpipe::frontend
