// Transformations of the coordinates of picked places: transposed, split, scaled, concatenated.

#include <algorithm>
#include <optional>

#include "frontend/evaluate.h"
#include "frontend/lower_selection.h"
#include "support/integer_math.h"

namespace graphpipe::frontend {
namespace {

using ir::Dim;
using ir::Shape;
using ir::ValueId;

/// Small tensors of coordinates are transformed by the rules for known tensors, with the coordinates' numbers in place
/// of the coordinates, and a unique size in place of the number of places.
class MovedCoordinates {
 public:
  explicit MovedCoordinates(NodeContext& context) : context_(context) {}

  Status run();

 private:
  Status number_operands();
  Known numbers_of(const Selected& selected, const ir::TensorType& type);
  std::optional<Known> operand(const Known& known) const;
  Status bind_moved(size_t output, const Known& moved);
  Status bind_all_places(size_t output, int64_t first, int64_t count);
  Status split();

  NodeContext& context_;
  int64_t places_ = 61;
  Dim counted_;
  Selected first_;
  std::vector<Coordinate> coordinates_;
  std::vector<std::optional<Known>> operands_;
};

Known MovedCoordinates::numbers_of(const Selected& selected, const ir::TensorType& type) {
  const auto first = static_cast<int64_t>(coordinates_.size());
  coordinates_.insert(coordinates_.end(), selected.coordinates.begin(), selected.coordinates.end());
  Known known{.dtype = ir::DType::kInt64, .shape = type.shape};
  known.shape[selected.axis] = Dim::fixed(places_);
  known.uniform = selected.coordinates.size() == 1;
  if (known.uniform) {
    known.elements = {Number::of_whole(first)};
    return known;
  }
  size_t inner = 1;
  for (size_t i = selected.axis + 1; i < type.shape.size(); ++i) inner *= static_cast<size_t>(type.shape[i].factor);
  for (size_t i = 0; i < selected.coordinates.size(); i += inner)
    for (int64_t place = 0; place < places_; ++place)
      for (size_t k = 0; k < inner; ++k)
        known.elements.push_back(Number::of_whole(first + static_cast<int64_t>(i + k)));
  return known;
}

std::optional<Known> MovedCoordinates::operand(const Known& known) const {
  Known result = known;
  for (Number& number : result.elements) {
    if (!counts_places(number)) continue;
    if (number.power != counted_.power || __builtin_mul_overflow(number.whole, places_, &number.whole))
      return std::nullopt;
    number.power = 0;
  }
  return result;
}

Status MovedCoordinates::number_operands() {
  bool found = false;
  for (size_t i = 0; i < context_.node().inputs.size(); ++i) {
    operands_.emplace_back();
    if (!context_.has_input(i)) continue;
    const Selected* selected = selected_input(context_, i);
    if (selected == nullptr) {
      if (const Known* known = context_.known(i)) operands_[i] = operand(*known);
      continue;
    }
    const bool small =
        known_count({Dim::fixed(static_cast<int64_t>(selected->coordinates.size()) * places_)}).has_value();
    if (!is_of(selected, Selected::Kind::kCoordinates) || selected->coordinates.empty() || !small ||
        (found && selected->selection != first_.selection))
      return refuse_selection(context_, "combines coordinates of different masks, or with other numbers");
    if (!found) first_ = *selected;
    found = true;
    counted_ = context_.type(i).shape[selected->axis];
    operands_[i] = numbers_of(*selected, context_.type(i));
  }
  return Ok{};
}

Status MovedCoordinates::bind_moved(size_t output, const Known& moved) {
  const auto at = std::ranges::find(moved.shape, Dim::fixed(places_));
  if (at == moved.shape.end() || std::count(moved.shape.begin(), moved.shape.end(), Dim::fixed(places_)) != 1)
    return refuse_selection(context_, "takes some of the places that a mask picks");
  Selected selected{.selection = first_.selection, .axis = static_cast<size_t>(at - moved.shape.begin())};
  Shape shape = moved.shape;
  shape[selected.axis] = counted_;
  size_t inner = 1;
  for (size_t i = selected.axis + 1; i < shape.size(); ++i) inner *= static_cast<size_t>(shape[i].factor);
  const size_t block = inner * static_cast<size_t>(places_);
  // A reshape may tear the places of a coordinate apart, which no file of an exporter does.
  for (size_t i = 0; i < moved.elements.size() && !moved.uniform; ++i)
    if (moved.elements[i] != moved.elements[i / block * block + i % inner])
      return refuse_selection(context_, "mixes the coordinates of picked places");
  for (size_t i = 0; i < moved.elements.size(); i += moved.uniform ? moved.elements.size() : block)
    for (size_t k = 0; k < (moved.uniform ? 1 : inner); ++k)
      selected.coordinates.push_back(coordinates_[static_cast<size_t>(moved.elements[i + k].whole)]);
  return bind_selected(context_, output, {ir::DType::kInt64, std::move(shape)}, {}, std::move(selected));
}

/// Part `first`, first + 1, ... of the places, if there are as many parts as the mask has places: the file is only
/// valid if all are picked, as in a loop over the experts of a layer that was exported with all of them in use.
Status MovedCoordinates::bind_all_places(size_t output, int64_t first, int64_t count) {
  const Shape& box = context_.lowering().selections()[first_.selection].box;
  Known known{.dtype = ir::DType::kInt64, .shape = operands_[0]->shape};
  known.shape[first_.axis] = Dim::fixed(count);
  const std::optional<size_t> numbers = known_count(known.shape);
  if (!numbers || *numbers != coordinates_.size() * static_cast<size_t>(count))
    return refuse_selection(context_, "splits the places that a mask picks into too large parts");
  size_t inner = 1;
  for (size_t i = first_.axis + 1; i < known.shape.size(); ++i) inner *= static_cast<size_t>(known.shape[i].factor);
  for (size_t i = 0; i < coordinates_.size(); i += inner)
    for (int64_t place = first; place < first + count; ++place)
      for (size_t k = 0; k < inner; ++k) {
        const Coordinate& coordinate = coordinates_[i + k];
        int64_t number = coordinate.offset, rest = place;
        for (size_t axis = box.size(); axis-- > 0; rest /= box[axis].factor)
          number += coordinate.strides[axis].whole * (rest % box[axis].factor);
        known.elements.push_back(Number::of_whole(number));
      }
  known.uniform = known.elements.size() == 1;
  Binding binding;
  binding.type = {known.dtype, known.shape};
  binding.known = std::move(known);
  context_.lowering().bind(context_.node().outputs[output], std::move(binding));
  return Ok{};
}

Status MovedCoordinates::split() {
  GP_TRY(const int64_t axis, context_.axis(context_.int_attribute("axis", 0), context_.rank(0)));
  const auto outputs = static_cast<int64_t>(context_.node().outputs.size());
  const int64_t size = operands_[0]->shape[static_cast<size_t>(axis)].factor;
  std::vector<int64_t> sizes(static_cast<size_t>(outputs), outputs > 0 ? size / outputs + (size % outputs > 0) : 0);
  if (context_.has_input(1)) {
    GP_TRY(sizes, context_.integers(1, "sizes"));
  }
  int64_t start = 0;
  const bool by_place = static_cast<size_t>(axis) == first_.axis;
  const std::optional<Dim> all = ir::element_count(context_.lowering().selections()[first_.selection].box);
  const std::optional<int64_t> taken = checked_sum(sizes);
  if (!taken) return refuse_selection(context_, "splits coordinates in a way that is not known");
  if (by_place && (!all || *all != Dim::fixed(*taken)))
    return refuse_selection(context_, "takes some of the places that a mask picks");
  OnnxNode slice = context_.node();
  slice.op = "Slice";
  slice.attributes.clear();
  for (size_t i = 0; i < sizes.size() && i < context_.node().outputs.size(); ++i) {
    if (by_place) {
      GP_TRY_VOID(bind_all_places(i, start, sizes[i]));
      start += sizes[i];
      continue;
    }
    const auto list = [](int64_t number) { return Known::list({Number::of_whole(number)}); };
    const Known from = list(start), to = list(start += sizes[i]), along = list(axis);
    const std::vector<const Known*> inputs{&*operands_[0], &from, &to, &along};
    const std::optional<Known> part = evaluate_movement(slice, inputs);
    if (!part) return refuse_selection(context_, "splits coordinates in a way that is not known");
    GP_TRY_VOID(bind_moved(i, *part));
  }
  return Ok{};
}

/// Whether the node transforms its first operand, or concatenates all: its other operands are parameters of that.
bool moves_first(NodeContext& context) {
  static constexpr std::string_view kMoves[] = {"Reshape", "Squeeze", "Unsqueeze", "Transpose",
                                                "Slice",   "Gather",  "Split"};
  const std::string& op = context.node().op;
  const bool joins = op == "Concat";
  if (!joins && std::ranges::find(kMoves, op) == std::end(kMoves)) return false;
  for (size_t i = 0; i < context.node().inputs.size(); ++i)
    if (is_of(selected_input(context, i), Selected::Kind::kCoordinates) != (joins || i == 0)) return false;
  return true;
}

Status MovedCoordinates::run() {
  if (!moves_first(context_))
    return refuse_selection(context_, "does with coordinates of picked places what is not supported");
  for (size_t i = 0; i < context_.node().inputs.size(); ++i)
    if (context_.has_input(i) && std::ranges::count(context_.type(i).shape, Dim::fixed(places_)) > 0) places_ = 59;
  GP_TRY_VOID(number_operands());
  if (context_.node().op == "Split") return split();
  std::vector<const Known*> inputs;
  for (size_t i = 0; i < operands_.size(); ++i) {
    if (context_.has_input(i) && !operands_[i])
      return refuse_selection(context_, "moves coordinates of picked places by what is not known");
    inputs.push_back(operands_[i] ? &*operands_[i] : nullptr);
  }
  const std::optional<Known> moved = evaluate_movement(context_.node(), inputs);
  if (!moved) return refuse_selection(context_, "does with coordinates of picked places what is not supported");
  return bind_moved(0, *moved);
}

std::optional<Number> whole_number(NodeContext& context, size_t i) {
  const Known* known = context.known(i);
  if (known == nullptr || known->elements.size() != 1 || known->elements[0].floating) return std::nullopt;
  return known->elements[0];
}

/// c + n, c - n, c * n and c + d, for coordinates c and d and a known number n: these are also functions of the place.
Status add_or_scale(NodeContext& context) {
  const std::string& op = context.node().op;
  const size_t at = is_of(selected_input(context, 0), Selected::Kind::kCoordinates) ? 0 : 1;
  Selected result = *selected_input(context, at);
  const Selected* other = selected_input(context, 1 - at);
  const std::optional<Number> number = whole_number(context, 1 - at);
  const auto refusal = refuse_selection(context, "computes with coordinates of picked places what is not supported");
  if (at == 1 && op == "Sub") return refusal;
  for (size_t i = 0; i < result.coordinates.size(); ++i) {
    Coordinate& coordinate = result.coordinates[i];
    if (op == "Mul") {
      if (!number || coordinate.offset != 0) return refusal;
      for (Number& stride : coordinate.strides) {
        const std::optional<Number> scaled = multiply(stride, *number);
        if (!scaled) return refusal;
        stride = *scaled;
      }
    } else if (number) {
      if (!number->is_fixed() || std::abs(number->whole) > INT32_MAX) return refusal;
      coordinate.offset += op == "Sub" ? -number->whole : number->whole;
    } else {
      const bool fits = is_of(other, Selected::Kind::kCoordinates) && op == "Add" &&
                        other->selection == result.selection && context.type(0).shape == context.type(1).shape &&
                        other->coordinates.size() == result.coordinates.size();
      if (!fits) return refusal;
      coordinate.offset += other->coordinates[i].offset;
      for (size_t axis = 0; axis < coordinate.strides.size(); ++axis) {
        const std::optional<Number> sum = add(coordinate.strides[axis], other->coordinates[i].strides[axis]);
        if (!sum) return refusal;
        coordinate.strides[axis] = *sum;
      }
    }
  }
  return bind_selected(context, 0, context.type(at), {}, std::move(result));
}

/// Null if the operand holds no coordinates: another operand of the node does.
const Selected* coordinates_of(NodeContext& context, size_t i) {
  const Selected* selected = selected_input(context, i);
  return is_of(selected, Selected::Kind::kCoordinates) ? selected : nullptr;
}

/// The same coordinates along further axes.
Status expand_coordinates(NodeContext& context) {
  if (coordinates_of(context, 0) == nullptr)
    return refuse_selection(context, "takes coordinates of picked places as a shape");
  GP_TRY(const Shape target, context.dims(1, "target shape"));
  const Shape& from = context.type(0).shape;
  const std::optional<Shape> shape = broadcast(from, target);
  if (shape && *shape == from) {
    context.bind_alias();
    return Ok{};
  }
  Selected selected = *selected_input(context, 0);
  if (!shape || selected.coordinates.size() != 1)
    return refuse_selection(context, "repeats coordinates of picked places in a way that is not supported");
  selected.axis += shape->size() - from.size();
  return bind_selected(context, 0, {context.type(0).dtype, *shape}, {}, std::move(selected));
}

/// Exporters take the maximum of all indices just to get its shape.
Status shape_of_largest(NodeContext& context) {
  if (context.node().inputs.size() == 1) {
    context.bind_alias();
    return Ok{};
  }
  const Selected* first = coordinates_of(context, 0);
  for (size_t i = 0; i < context.node().inputs.size(); ++i) {
    const Selected* other = coordinates_of(context, i);
    if (first == nullptr || other == nullptr || other->selection != first->selection ||
        context.type(i).shape != context.type(0).shape)
      return refuse_selection(context, "compares coordinates of picked places with other numbers");
  }
  Selected selected = *first;
  selected.coordinates.clear();
  return bind_selected(context, 0, context.type(0), {}, std::move(selected));
}

}  // namespace

Status move_coordinates(NodeContext& context) {
  const std::string& op = context.node().op;
  if (op == "Identity" || op == "Cast") {
    context.bind_alias();
    return Ok{};
  }
  if (op == "Max") return shape_of_largest(context);
  if (op == "Expand") return expand_coordinates(context);
  if (op == "Add" || op == "Sub" || op == "Mul") return add_or_scale(context);
  return MovedCoordinates(context).run();
}

}  // namespace graphpipe::frontend
