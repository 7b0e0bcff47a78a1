// Slices with data-dependent bounds. No shape can express how many elements lie in between, so a mask picks them
// (frontend/selection.h).

#include "frontend/lower_selection.h"

namespace graphpipe::frontend {
namespace {

using ir::Dim;
using ir::Shape;
using ir::ValueId;

/// A data-dependent number, or one that is known and the same for every batch.
bool is_bound(NodeContext& context, size_t i) {
  const Binding& bound = context.input(i);
  const bool is_one = bound.type.shape.empty() || bound.type.shape == Shape{Dim::fixed(1)};
  if (!is_one || bound.poisoned || bound.selected || ir::is_floating(bound.type.dtype)) return false;
  return bound.known ? bound.known->elements[0].is_fixed() : bound.value.valid();
}

/// The axis that is sliced; nothing if the node has another form.
std::optional<size_t> cut_axis(NodeContext& context) {
  const auto number = [&](size_t i, int64_t otherwise) -> std::optional<int64_t> {
    if (!context.has_input(i)) return otherwise;
    const Known* known = context.known(i);
    const std::optional<std::vector<int64_t>> whole = known == nullptr ? std::nullopt : whole_numbers(*known);
    return whole && whole->size() == 1 ? std::optional(whole->front()) : std::nullopt;
  };
  const std::optional<int64_t> axis = number(3, 0);
  if (!axis || number(4, 1) != 1) return std::nullopt;
  const auto rank = static_cast<int64_t>(context.rank(0));
  const int64_t counted = *axis < 0 ? *axis + rank : *axis;
  if (counted < 0 || counted >= rank || !context.type(0).shape[static_cast<size_t>(counted)].is_fixed())
    return std::nullopt;
  return static_cast<size_t>(counted);
}

/// Input i as an int64 scalar; a negative one counts from the end.
Result<ValueId> bound_of(NodeContext& context, size_t i, int64_t size) {
  GP_TRY(ValueId bound, context.value(i));
  if (context.type(i).dtype != ir::DType::kInt64) {
    GP_TRY(bound, context.emit_one("Cast", {bound}, {{"to", std::string("i64")}}));
  }
  if (!context.type(i).shape.empty()) {
    GP_TRY(bound, context.emit_one("Reshape", {bound}, {{"shape", Shape()}}));
  }
  const Known* known = context.known(i);
  if (known != nullptr && known->elements[0].whole >= 0) return bound;
  GP_TRY(const ValueId zero, context.scalar(0, ir::DType::kInt64));
  GP_TRY(const ValueId all, context.scalar(static_cast<double>(size), ir::DType::kInt64));
  GP_TRY(const ValueId from_end, context.emit_one("Less", {bound, zero}));
  GP_TRY(const ValueId counted, context.emit_one("Add", {bound, all}));
  return context.emit_one("Where", {from_end, counted, bound});
}

}  // namespace

bool is_between_data(NodeContext& context) {
  if (!context.has_input(1) || !context.has_input(2) || selected_input(context, 0) != nullptr) return false;
  const bool depends = context.known(1) == nullptr || context.known(2) == nullptr;
  return depends && is_bound(context, 1) && is_bound(context, 2) && cut_axis(context).has_value();
}

Status slice_between_data(NodeContext& context) {
  const size_t axis = *cut_axis(context);
  const Dim size = context.type(0).shape[axis];
  GP_TRY(const ValueId value, context.value(0));
  GP_TRY(const ValueId start, bound_of(context, 1, size.factor));
  GP_TRY(const ValueId end, bound_of(context, 2, size.factor));
  GP_TRY(const ValueId places, context.emit_one("Iota", {}, {{"shape", Shape{size}}, {"to", std::string("i64")}}));
  GP_TRY(const ValueId from, context.emit_one("GreaterOrEqual", {places, start}));
  GP_TRY(const ValueId before, context.emit_one("Less", {places, end}));
  GP_TRY(const ValueId mask, context.emit_one("And", {from, before}));
  GP_TRY(const size_t selection, selection_by(context, mask));
  ir::TensorType type = context.type(0);
  type.shape[axis] = picked_places(selection, {size});
  return bind_selected(context, 0, std::move(type), value,
                       {.kind = Selected::Kind::kRows, .selection = selection, .axis = axis});
}

}  // namespace graphpipe::frontend
