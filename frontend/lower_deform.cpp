// DeformConv: a convolution that reads x at offsets, given by an input, from the places of its kernel. GridSample
// reads, and a convolution with a 1x1 kernel weights what was read. Positions are those of
// https://onnx.ai/onnx/operators/onnx__DeformConv.html; reads outside x give zero, as there.

#include "frontend/node_context.h"
#include "ops/spatial.h"

namespace graphpipe::frontend {
namespace {

using ir::Dim;
using ir::Shape;
using ir::ValueId;
using Ints = std::vector<int64_t>;

class DeformedConvolution {
 public:
  explicit DeformedConvolution(NodeContext& context) : context_(context) {}
  Status run();

 private:
  Status read_form();
  Result<ValueId> reshape(ValueId value, Shape shape) {
    return context_.emit_one("Reshape", {value}, {{"shape", std::move(shape)}});
  }
  Result<ValueId> positions(ValueId shifts, size_t axis);
  Result<ValueId> grid();
  Result<ValueId> columns();
  Shape with_places(Shape shape) const;

  NodeContext& context_;
  ops::Window window_;
  Ints sizes_, places_;
  int64_t groups_ = 1, elements_ = 1;
  Dim channels_;
  /// Samples times offset groups.
  Dim readers_;
};

Diagnostic wrong_shapes(const NodeContext& context) {
  return context.problem(Code::kBadModel, "its input, weight, shifts and mask do not fit each other",
                         "export the model again");
}

Status DeformedConvolution::read_form() {
  const Shape x = context_.type(0).shape, weight = context_.type(1).shape;
  if (x.size() != weight.size() || (x.size() != 4 && x.size() != 5))
    return context_.problem(Code::kUnsupportedOp, text("reads ", x.size() < 2 ? 0 : x.size() - 2, " axes"),
                            "use 2 or 3 axes");
  GP_TRY(const ir::Attributes attributes, convolution_attributes(context_, weight));
  const Ints pads = attributes.get_ints("pads");
  const auto half = static_cast<std::ptrdiff_t>(pads.size() / 2);
  window_ = {.kernel = {},
             .strides = attributes.get_ints("strides"),
             .dilations = attributes.get_ints("dilations"),
             .begin = Ints(pads.begin(), pads.begin() + half),
             .end = Ints(pads.begin() + half, pads.end())};
  groups_ = context_.int_attribute("offset_group", 1);
  channels_ = x[1];
  if (groups_ < 1 || !channels_.is_fixed() || channels_.factor % groups_ != 0) return wrong_shapes(context_);
  for (size_t axis = 0; axis + 2 < x.size(); ++axis) {
    if (!x[axis + 2].is_fixed() || !weight[axis + 2].is_fixed()) return wrong_shapes(context_);
    window_.kernel.push_back(weight[axis + 2].factor);
    sizes_.push_back(x[axis + 2].factor);
    if (__builtin_mul_overflow(elements_, window_.kernel.back(), &elements_)) return wrong_shapes(context_);
    places_.push_back(ops::position_count(window_, axis, sizes_.back(), false));
    if (places_.back() < 1) return wrong_shapes(context_);
  }
  const std::optional<Dim> readers = ops::multiply(x[0], Dim::fixed(groups_));
  if (!readers) return wrong_shapes(context_);
  readers_ = *readers;
  Shape shifts = with_places({x[0], Dim::fixed(groups_ * elements_ * std::ssize(sizes_))});
  Shape mask = with_places({x[0], Dim::fixed(groups_ * elements_)});
  const bool fits = context_.type(2).shape == shifts && (!context_.has_input(4) || context_.type(4).shape == mask);
  if (!fits) return wrong_shapes(context_);
  for (const int64_t places : places_) GP_TRY_VOID(context_.has_room_for(places));
  return context_.has_room_for(elements_);
}

Shape DeformedConvolution::with_places(Shape shape) const {
  for (const int64_t places : places_) shape.push_back(Dim::fixed(places));
  return shape;
}

/// Where each element of the kernel reads on one axis, from the offsets [readers, elements, 1, places..]: in units in
/// which the axis extends from -1 to 1.
Result<ValueId> DeformedConvolution::positions(ValueId shifts, size_t axis) {
  const auto size = static_cast<double>(sizes_[axis]);
  const auto unit = [size](int64_t cells) { return 2 * static_cast<double>(cells) / size; };
  std::vector<double> by_element, by_place;
  int64_t inner = 1;
  for (size_t i = axis + 1; i < window_.rank(); ++i) inner *= window_.kernel[i];
  for (int64_t element = 0; element < elements_; ++element)
    by_element.push_back(unit(element / inner % window_.kernel[axis] * window_.dilations[axis]));
  for (int64_t place = 0; place < places_[axis]; ++place)
    by_place.push_back(unit(place * window_.strides[axis] - window_.begin[axis]) + 1 / size - 1);
  Shape elements(2 + window_.rank(), Dim::fixed(1)), places(window_.rank() - axis, Dim::fixed(1));
  elements[0] = Dim::fixed(elements_);
  places[0] = Dim::fixed(places_[axis]);
  const ir::DType dtype = context_.type(0).dtype;
  GP_TRY(const ValueId first, context_.constant(text("elements", axis), dtype, std::move(elements), by_element));
  GP_TRY(const ValueId second, context_.constant(text("places", axis), dtype, std::move(places), by_place));
  GP_TRY(ValueId position, context_.emit_one("Scale", {shifts}, {{"factor", 2 / size}}));
  GP_TRY(position, context_.emit_one("Add", {position, first}));
  return context_.emit_one("Add", {position, second});
}

/// [readers, elements * places, .., axes], the last axis of x first, as GridSample takes it.
Result<ValueId> DeformedConvolution::grid() {
  const auto axes = static_cast<int64_t>(sizes_.size());
  GP_TRY(ValueId shifts, context_.value(2));
  GP_TRY(shifts, reshape(shifts, with_places({readers_, Dim::fixed(elements_), Dim::fixed(axes)})));
  GP_TRY(std::vector<ValueId> parts,
         context_.emit("Split", {shifts}, {{"axis", int64_t{2}}, {"sizes", Ints(sizes_.size(), 1)}}, sizes_.size()));
  for (size_t axis = 0; axis < parts.size(); ++axis) {
    GP_TRY(parts[axis], positions(parts[axis], axis));
  }
  std::reverse(parts.begin(), parts.end());
  GP_TRY(ValueId grid, context_.emit_one("Concat", std::move(parts), {{"axis", int64_t{2}}}));
  Ints order = {0, 1};
  for (int64_t axis = 0; axis < axes; ++axis) order.push_back(3 + axis);
  order.push_back(2);
  GP_TRY(grid, context_.emit_one("Transpose", {grid}, {{"perm", std::move(order)}}));
  Shape shape = with_places({readers_});
  shape[1].factor *= elements_;
  shape.push_back(Dim::fixed(axes));
  return reshape(grid, std::move(shape));
}

/// What the kernel's elements read, [samples, channels * elements, places..].
Result<ValueId> DeformedConvolution::columns() {
  GP_TRY(const ValueId grid, this->grid());
  Shape planes = {readers_, Dim::fixed(channels_.factor / groups_)};
  for (const int64_t size : sizes_) planes.push_back(Dim::fixed(size));
  GP_TRY(ValueId read, context_.value(0));
  const Dim samples = context_.type(0).shape[0];
  GP_TRY(read, reshape(read, std::move(planes)));
  GP_TRY(read,
         context_.emit_one(
             "GridSample", {read, grid},
             {{"mode", std::string("linear")}, {"padding_mode", std::string("zeros")}, {"align_corners", int64_t{0}}}));
  if (context_.has_input(4)) {
    GP_TRY(ValueId mask, context_.value(4));
    Shape shape = with_places({readers_, Dim::fixed(1)});
    shape[2].factor *= elements_;
    GP_TRY(mask, reshape(mask, std::move(shape)));
    GP_TRY(read, context_.emit_one("Mul", {read, mask}));
  }
  return reshape(read, with_places({samples, Dim::fixed(channels_.factor * elements_)}));
}

Status DeformedConvolution::run() {
  GP_TRY_VOID(read_form());
  GP_TRY(const ValueId read, columns());
  const size_t axes = sizes_.size();
  GP_TRY(ValueId weight, context_.value(1));
  Shape shape(2 + axes, Dim::fixed(1));
  shape[0] = context_.type(1).shape[0];
  shape[1] = ops::multiply(context_.type(1).shape[1], Dim::fixed(elements_)).value_or(Dim::fixed(0));
  GP_TRY(weight, reshape(weight, std::move(shape)));
  std::vector<ValueId> inputs = {read, weight};
  if (context_.has_input(3)) {
    GP_TRY(const ValueId bias, context_.value(3));
    inputs.push_back(bias);
  }
  return context_.emit_outputs("Conv", std::move(inputs),
                               {{"strides", Ints(axes, 1)},
                                {"dilations", Ints(axes, 1)},
                                {"pads", Ints(2 * axes, 0)},
                                {"group", context_.int_attribute("group", 1)}});
}

Status lower_deform_conv(NodeContext& context) { return DeformedConvolution(context).run(); }

}  // namespace

std::vector<HandlerEntry> deform_handlers() { return {{"DeformConv", lower_deform_conv}}; }

}  // namespace graphpipe::frontend
