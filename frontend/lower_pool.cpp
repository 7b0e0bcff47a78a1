// Pools. The dictionary's entries average over dense windows and return the index of a maximum within its plane:
// averages over dilated windows are sums axis by axis, and ONNX's indices into the whole tensor are computed from
// those.

#include <algorithm>
#include <array>

#include "frontend/node_context.h"
#include "ops/spatial.h"

namespace graphpipe::frontend {
namespace {

using ir::Dim;
using ir::Shape;
using ir::ValueId;
using Ints = std::vector<int64_t>;

Result<ValueId> made_by(NodeContext& context, std::string_view op, std::vector<ValueId> inputs,
                        ir::Attributes attributes = {}) {
  GP_TRY(const std::vector<ValueId> made, context.emit(op, std::move(inputs), std::move(attributes)));
  return made[0];
}

/// The mean over a dilated window. A window is a box, so both its sum and the number of counted cells are computed axis
/// by axis.
class DilatedAverage {
 public:
  DilatedAverage(NodeContext& context, const ir::Attributes& attributes, const Shape& shape);
  Result<ValueId> run(ValueId value);

 private:
  Status find_positions();
  Result<ValueId> sum_along(ValueId value, size_t axis);
  std::vector<double> shares(size_t axis) const;

  NodeContext& context_;
  ops::Window window_;
  bool rounds_up_, counts_pads_;
  Shape shape_;
  Ints sizes_, positions_;
};

DilatedAverage::DilatedAverage(NodeContext& context, const ir::Attributes& attributes, const Shape& shape)
    : context_(context),
      rounds_up_(attributes.get_int("ceil_mode", 0) != 0),
      counts_pads_(attributes.get_int("count_include_pad", 0) != 0),
      shape_(shape) {
  const Ints pads = attributes.get_ints("pads");
  window_ = {.kernel = attributes.get_ints("kernel_shape"),
             .strides = attributes.get_ints("strides"),
             .dilations = attributes.get_ints("dilations"),
             .begin = Ints(pads.begin(), pads.begin() + static_cast<std::ptrdiff_t>(pads.size() / 2)),
             .end = Ints(pads.begin() + static_cast<std::ptrdiff_t>(pads.size() / 2), pads.end())};
}

Status DilatedAverage::find_positions() {
  for (size_t axis = 0; axis < window_.rank(); ++axis) {
    const Dim size = shape_[axis + 2];
    if (!size.is_fixed())
      return context_.problem(Code::kMixesSamples, text("moves a window over the batch, axis ", axis + 2),
                              "put the samples on axis 0");
    sizes_.push_back(size.factor);
    positions_.push_back(ops::position_count(window_, axis, size.factor, rounds_up_));
    if (positions_.back() < 1)
      return context_.problem(Code::kBadModel, text("its input is smaller than its window on axis ", axis + 2),
                              "export the model again");
    GP_TRY_VOID(context_.has_room_for(positions_.back()));
  }
  return Ok{};
}

/// One over the number of counted cells, for each position of the window.
std::vector<double> DilatedAverage::shares(size_t axis) const {
  const int64_t low = counts_pads_ ? -window_.begin[axis] : 0;
  const int64_t high = sizes_[axis] + (counts_pads_ ? window_.end[axis] : 0);
  std::vector<double> result;
  for (int64_t position = 0; position < positions_[axis]; ++position) {
    const int64_t first = position * window_.strides[axis] - window_.begin[axis];
    // The number of its cells before a position.
    const auto before = [&](int64_t place) {
      const int64_t span = place - first, dilation = window_.dilations[axis];
      return span <= 0 ? 0 : std::min((span - 1) / dilation + 1, window_.kernel[axis]);
    };
    const int64_t cells = before(high) - before(low);
    result.push_back(cells > 0 ? 1.0 / static_cast<double>(cells) : 0);
  }
  return result;
}

Result<ValueId> DilatedAverage::sum_along(ValueId value, size_t axis) {
  const auto place = static_cast<int64_t>(axis) + 2;
  const int64_t span = window_.span(axis);
  GP_TRY(value,
         made_by(context_, "Frames", {value}, {{"axis", place}, {"length", span}, {"step", window_.strides[axis]}}));
  GP_TRY(value, made_by(context_, "Slice", {value},
                        {{"starts", Ints{0}},
                         {"ends", Ints{span}},
                         {"axes", Ints{place + 1}},
                         {"steps", Ints{window_.dilations[axis]}}}));
  return made_by(context_, "ReduceSum", {value}, {{"axes", Ints{place + 1}}, {"keepdims", int64_t{0}}});
}

Result<ValueId> DilatedAverage::run(ValueId value) {
  GP_TRY_VOID(find_positions());
  Ints pads(2 * shape_.size(), 0);
  for (size_t axis = 0; axis < window_.rank(); ++axis) {
    // Exactly the cells that windows touch.
    const int64_t touched = (positions_[axis] - 1) * window_.strides[axis] + window_.span(axis);
    pads[axis + 2] = window_.begin[axis];
    pads[shape_.size() + axis + 2] = touched - sizes_[axis] - window_.begin[axis];
  }
  if (std::any_of(pads.begin(), pads.end(), [](int64_t pad) { return pad != 0; })) {
    GP_TRY(value,
           made_by(context_, "Pad", {value}, {{"pads", pads}, {"mode", std::string("constant")}, {"value", 0.0}}));
  }
  double factor = 1;
  for (size_t axis = 0; axis < window_.rank(); ++axis) {
    GP_TRY(value, sum_along(value, axis));
    const std::vector<double> each = shares(axis);
    if (std::find(each.begin(), each.end(), 0) != each.end())
      return context_.problem(Code::kUnsupportedOp, "averages windows of no cell that counts",
                              "use smaller pads, or count_include_pad 1");
    if (std::equal(each.begin() + 1, each.end(), each.begin())) {
      factor *= each[0];
      continue;
    }
    Shape column(window_.rank() - axis, Dim::fixed(1));
    column[0] = Dim::fixed(positions_[axis]);
    GP_TRY(const ValueId share, context_.constant(text("shares", axis), context_.type(0).dtype, column, each));
    GP_TRY(value, made_by(context_, "Mul", {value, share}));
  }
  return made_by(context_, "Scale", {value}, {{"factor", factor}});
}

/// Bytes are pooled as floats, which represent them exactly.
Result<ValueId> pooled_value(NodeContext& context) {
  GP_TRY(const ValueId input, context.value(0));
  const ir::DType dtype = context.type(0).dtype;
  if (dtype != ir::DType::kInt8 && dtype != ir::DType::kUInt8) return input;
  return made_by(context, "Cast", {input}, {{"to", std::string("f32")}});
}

/// Indices into the whole tensor, from those within the planes of x [N, C, ..].
Result<ValueId> places(NodeContext& context, ValueId in_plane, bool column_major) {
  const Shape& x = context.type(0).shape;
  int64_t cells = 1;
  for (size_t axis = 2; axis < x.size(); ++axis) cells *= x[axis].factor;
  const auto number = [&](int64_t value) { return context.scalar(static_cast<double>(value), ir::DType::kInt64); };
  ValueId place = in_plane;
  if (column_major && x.size() == 4) {
    GP_TRY(const ValueId width, number(x[3].factor));
    GP_TRY(const ValueId height, number(x[2].factor));
    GP_TRY(const ValueId row, made_by(context, "Div", {place, width}));
    GP_TRY(const ValueId column, made_by(context, "Mod", {place, width}));
    GP_TRY(const ValueId before, made_by(context, "Mul", {column, height}));
    GP_TRY(place, made_by(context, "Add", {before, row}));
  }
  const std::array<int64_t, 2> strides = {x[1].factor * cells, cells};
  // The sample's offset is added last, so that code that needs the index within the sample can find it
  // (lower_unpool.cpp).
  for (const size_t axis : {size_t{1}, size_t{0}}) {
    Shape column(x.size() - axis, Dim::fixed(1));
    column[0] = x[axis];
    GP_TRY(const ValueId first,
           made_by(
               context, "Iota", {},
               {{"shape", Shape{x[axis]}}, {"delta", static_cast<double>(strides[axis])}, {"to", std::string("i64")}}));
    GP_TRY(const ValueId turned, made_by(context, "Reshape", {first}, {{"shape", column}}));
    GP_TRY(place, made_by(context, "Add", {place, turned}));
  }
  return place;
}

Status lower_max_pool(NodeContext& context) {
  GP_TRY(ir::Attributes attributes, pool_attributes(context));
  attributes.set("ceil_mode", context.int_attribute("ceil_mode", 0));
  const Ints pads = attributes.get_ints("pads"), kernel = attributes.get_ints("kernel_shape");
  const bool gives_places = context.is_read(1), column_major = context.int_attribute("storage_order", 0) != 0;
  for (size_t axis = 0; gives_places && axis < kernel.size(); ++axis)
    if (pads[axis] != pads[axis + kernel.size()] || pads[axis] > kernel[axis] / 2 ||
        (column_major && kernel.size() > 2))
      return context.problem(Code::kUnsupportedOp,
                             "the output of indices is not supported with uneven pads, with pads of more than half "
                             "the window, or by columns of three axes",
                             "pad the input before, and leave storage_order 0");
  GP_TRY(const ValueId input, pooled_value(context));
  GP_TRY(const std::vector<ValueId> results,
         context.emit("MaxPool", {input}, std::move(attributes), gives_places ? 2 : 1));
  ValueId largest = results[0];
  if (context.lowering().graph().value(input).type.dtype != context.type(0).dtype) {
    GP_TRY(largest, made_by(context, "Cast", {largest}, {{"to", std::string(ir::dtype_name(context.type(0).dtype))}}));
  }
  context.bind(0, largest);
  if (!gives_places) return Ok{};
  GP_TRY(const ValueId place, places(context, results[1], column_major));
  context.bind(1, place);
  return Ok{};
}

Status lower_average_pool(NodeContext& context) {
  GP_TRY(ir::Attributes attributes, pool_attributes(context));
  attributes.set("ceil_mode", context.int_attribute("ceil_mode", 0));
  attributes.set("count_include_pad", context.int_attribute("count_include_pad", 0));
  GP_TRY(const ValueId input, context.value(0));
  GP_TRY(const ValueId average, average_over_windows(context, input, std::move(attributes)));
  context.bind(0, average);
  return Ok{};
}

}  // namespace

Result<ValueId> average_over_windows(NodeContext& context, ValueId value, ir::Attributes attributes) {
  const Ints dilations = attributes.get_ints("dilations");
  if (std::all_of(dilations.begin(), dilations.end(), [](int64_t dilation) { return dilation == 1; }))
    return made_by(context, "AveragePool", {value}, std::move(attributes));
  return DilatedAverage(context, attributes, context.type(0).shape).run(value);
}

std::vector<HandlerEntry> pool_handlers() { return {{"MaxPool", lower_max_pool}, {"AveragePool", lower_average_pool}}; }

}  // namespace graphpipe::frontend
