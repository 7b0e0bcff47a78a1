// Ops that slice, concatenate or repeat tensors: Concat, Split, Slice, Pad, Tile.
//
// Slicing needs fixed sizes: a slice along the batch axis would take some samples of a micro-batch, which has no
// meaning for samples that are computed independently, and is rejected. Concat and Tile along the batch axis mix
// samples.

#include <algorithm>

#include "ops/emit_helpers.h"
#include "ops/example_helpers.h"
#include "ops/families.h"
#include "ops/gradient_helpers.h"
#include "ops/infer_helpers.h"
#include "ops/sample_sum.h"

namespace graphpipe::ops {
namespace {

using ir::ValueId;

size_t at_axis(int64_t axis) { return static_cast<size_t>(axis); }

Diagnostic cuts_batch(const NodeView& node, std::string_view what) {
  return problem_at(node, Code::kMixesSamples, text(what, " along the batch axis, which takes samples apart by place"),
                    "move this node out of the model, or check that the axis named as the batch is the right one");
}

// --- Concat ---

Inferred infer_concat(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, node.input_count()));
  ir::Shape shape = node.input(0).type.shape;
  GP_TRY(const int axis, axis_attribute(node, "axis", 0, shape.size()));
  ir::Dim& joined = shape[at_axis(axis)];
  for (size_t i = 1; i < node.input_count(); ++i) {
    if (!node.has_input(i)) return bad_model(node, text("needs input ", i, ", which is absent"));
    GP_TRY_VOID(expect_same_dtype(node, {0, i}));
    ir::Shape other = node.input(i).type.shape;
    if (other.size() != shape.size()) return bad_model(node, "joins tensors of different rank");
    const ir::Dim added = other[at_axis(axis)];
    if (added.power != joined.power) return cuts_batch(node, "joins fixed rows to samples");
    if (added.factor < 0 || __builtin_add_overflow(joined.factor, added.factor, &joined.factor)) {
      return bad_model(node, "gives an impossible size");
    }
    other[at_axis(axis)] = joined;
    if (other != shape)
      return bad_model(node, text("cannot join ", shape_text(node.input(0).type.shape), " and ",
                                  shape_text(node.input(i).type.shape)));
  }
  const bool mixes = !joined.is_fixed() && node.input_count() > 1;
  return one_output(node, {node.input(0).type.dtype, shape}, mixes ? Mixing::kMixes : Mixing::kNone);
}

void emit_concat(Emitter& emitter) {
  std::string parts;
  for (size_t i = 0; i < emitter.node().input_count(); ++i) parts += (i == 0 ? "" : ", ") + emitter.in(i);
  const int64_t axis = emitter.node().attributes().get_int("axis", 0);
  emitter.assign(0, text("graphpipe::runtime::concat({", parts, "}, ", axis, ")"), kTensorLists);
}

Status concat_gradient(GradientBuilder& builder) {
  const NodeView& node = builder.forward();
  GP_TRY(const int axis, axis_attribute(node, "axis", 0, node.input(0).type.shape.size()));
  ir::Dim start{0, node.input(0).type.shape[at_axis(axis)].power};
  for (size_t i = 0; i < node.input_count(); ++i) {
    const ir::Dim size = node.input(i).type.shape[at_axis(axis)];
    if (builder.wants(i)) {
      builder.set_input_gradient(
          i, builder.add_one(i, "ConcatGrad", {builder.output_gradient(0)},
                             {{"axis", int64_t{axis}}, {"start", ir::Shape{start}}, {"size", ir::Shape{size}}}));
    }
    start.factor += size.factor;
  }
  return Ok{};
}

/// {axis, start: [Dim], size: [Dim]}: the rows of the gradient that belong to one input of the Concat.
Inferred infer_concat_gradient(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  ir::Shape shape = node.input(0).type.shape;
  GP_TRY(const int axis, axis_attribute(node, "axis", 0, shape.size()));
  const ir::Shape start = node.attributes().get_shape("start"), size = node.attributes().get_shape("size");
  if (start.size() != 1 || size.size() != 1) return bad_model(node, "needs one start and one size");
  ir::Dim& dim = shape[at_axis(axis)];
  const bool inside = size[0].power == dim.power && size[0].factor <= dim.factor && start[0].factor >= 0 &&
                      start[0].factor <= dim.factor - size[0].factor;
  if (!inside) return bad_model(node, "cuts outside of its input");
  dim = size[0];
  return one_output(node, {node.input(0).type.dtype, shape}, dim.is_fixed() ? Mixing::kNone : Mixing::kMixes);
}

void emit_concat_gradient(Emitter& emitter) {
  const ir::Attributes& attributes = emitter.node().attributes();
  emitter.assign(0,
                 text("at::narrow(", emitter.in(0), ", ", attributes.get_int("axis", 0), ", ",
                      emitter.dim(attributes.get_shape("start").front()), ", ",
                      emitter.dim(attributes.get_shape("size").front()), ")"),
                 "ATen/ops/narrow.h");
}

// --- Split ---

Inferred infer_split(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  const ir::TensorType& from = node.input(0).type;
  GP_TRY(const int axis, axis_attribute(node, "axis", 0, from.shape.size()));
  const std::vector<int64_t> sizes = node.attributes().get_ints("sizes");
  if (sizes.empty()) return bad_model(node, "names no sizes");
  if (is_batch_axis(node, 0, axis)) return cuts_batch(node, "splits");
  int64_t left = from.shape[at_axis(axis)].factor;
  std::vector<ir::Value> outputs;
  for (int64_t size : sizes) {
    if (size < 0 || size > left) return bad_model(node, text("splits ", shape_text(from.shape), " into too much"));
    left -= size;
    ir::Shape shape = from.shape;
    shape[at_axis(axis)] = ir::Dim::fixed(size);
    outputs.push_back(make_value(node, {from.dtype, std::move(shape)}));
  }
  if (left != 0) return bad_model(node, text("leaves ", left, " of ", shape_text(from.shape), " over"));
  return checked(node, std::move(outputs));
}

void emit_split(Emitter& emitter) {
  const NodeView& node = emitter.node();
  const std::string parts = emitter.local("parts");
  emitter.statement(text("auto ", parts, " = at::split_with_sizes(", emitter.in(0), ", ",
                         list(node.attributes().get_ints("sizes")), ", ", node.attributes().get_int("axis", 0), ");"),
                    "ATen/ops/split_with_sizes.h");
  for (size_t i = 0; i < node.output_count(); ++i) {
    emitter.assign(i, text(parts, "[", i, "]"), "ATen/ops/split_with_sizes.h");
  }
}

Status split_gradient(GradientBuilder& builder) {
  if (!builder.wants(0)) return Ok{};
  const NodeView& node = builder.forward();
  std::vector<ValueId> gradients;
  for (size_t i = 0; i < node.output_count(); ++i) gradients.push_back(builder.output_gradient(i));
  builder.set_input_gradient(0, builder.add_one(0, "SplitGrad", gradients,
                                                {{"axis", node.attributes().get_int("axis", 0)},
                                                 {"sizes", node.attributes().get_ints("sizes")},
                                                 {"shape", node.input(0).type.shape}}));
  return Ok{};
}

/// Concatenates the gradients of a Split's outputs; absent ones are zero. {axis, sizes, shape: of the input}
Inferred infer_split_gradient(const NodeView& node) {
  const ir::Shape shape = node.attributes().get_shape("shape");
  GP_TRY_VOID(axis_attribute(node, "axis", 0, shape.size()));
  if (node.input_count() != node.attributes().get_ints("sizes").size()) return bad_model(node, "lacks sizes");
  for (size_t i = 0; i < node.input_count(); ++i) {
    if (node.has_input(i)) return one_output(node, {node.input(i).type.dtype, shape});
  }
  return bad_model(node, "has no gradient to join");
}

void emit_split_gradient(Emitter& emitter) {
  const NodeView& node = emitter.node();
  const std::vector<int64_t> sizes = node.attributes().get_ints("sizes");
  const int axis = axis_attribute(node, "axis", 0, node.output(0).type.shape.size()).value();
  size_t given = 0;
  while (!node.has_input(given)) ++given;
  std::string parts;
  for (size_t i = 0; i < sizes.size(); ++i) {
    ir::Shape shape = node.output(0).type.shape;
    shape[at_axis(axis)] = ir::Dim::fixed(sizes[i]);
    const std::string zeros = text(emitter.in(given), ".new_zeros(", emitter.dims(shape), ")");
    parts += (i == 0 ? "" : ", ") + (node.has_input(i) ? emitter.in(i) : zeros);
  }
  emitter.assign(0, text("graphpipe::runtime::concat({", parts, "}, ", axis, ")"), kTensorLists);
}

// --- Slice ---

/// One axis of a Slice, normalised: rows low, low + step, ... below high, in reverse order if `reversed`.
struct Cut {
  int axis = 0;
  int64_t low = 0, high = 0, step = 1;
  bool reversed = false;
  int64_t size() const { return high <= low ? 0 : (high - low - 1) / step + 1; }
};

/// ONNX's clamping: a negative position counts from the end.
int64_t clamped(int64_t place, int64_t size, int64_t low, int64_t high) {
  if (place < 0) place += size;
  return std::clamp(place, low, high);
}

Cut cut_of(int axis, int64_t size, int64_t start, int64_t end, int64_t step) {
  if (step > 0) return {axis, clamped(start, size, 0, size), clamped(end, size, 0, size), step};
  const int64_t first = clamped(start, size, 0, size - 1), last_after = clamped(end, size, -1, size - 1);
  if (first <= last_after || size == 0) return {.axis = axis};
  const int64_t stride = step == INT64_MIN ? INT64_MAX : -step;
  const int64_t count = (first - last_after - 1) / stride + 1;
  return {axis, first - (count - 1) * stride, first + 1, stride, true};
}

bool keeps_all(int64_t start, int64_t end, int64_t step) {
  // Exporters write the largest int64 or int32 for "to the end".
  return start == 0 && step == 1 && end >= INT32_MAX;
}

/// The slices of the attributes applied to a shape. An axis that is kept whole is omitted.
Result<std::vector<Cut>> cuts_of(const NodeView& node, const ir::Shape& shape) {
  const std::vector<int64_t> starts = node.attributes().get_ints("starts"), ends = node.attributes().get_ints("ends");
  std::vector<int64_t> axes = node.attributes().get_ints("axes"), steps = node.attributes().get_ints("steps");
  if (!node.attributes().has("axes")) {
    for (size_t i = 0; i < starts.size(); ++i) axes.push_back(static_cast<int64_t>(i));
  }
  if (!node.attributes().has("steps")) steps.assign(starts.size(), 1);
  if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size()) {
    return bad_model(node, "has starts, ends, axes and steps of different length");
  }
  GP_TRY_VOID(normalized_axes(node, axes, shape.size()));
  std::vector<Cut> cuts;
  for (size_t i = 0; i < starts.size(); ++i) {
    GP_TRY(const int axis, normalized_axis(node, axes[i], shape.size()));
    if (steps[i] == 0) return bad_model(node, "has step 0");
    if (keeps_all(starts[i], ends[i], steps[i])) continue;
    const ir::Dim dim = shape[at_axis(axis)];
    if (!dim.is_fixed()) return cuts_batch(node, "cuts");
    cuts.push_back(cut_of(axis, dim.factor, starts[i], ends[i], steps[i]));
  }
  return cuts;
}

Inferred infer_slice(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  ir::TensorType type = node.input(0).type;
  GP_TRY(const std::vector<Cut> cuts, cuts_of(node, type.shape));
  for (const Cut& cut : cuts) type.shape[at_axis(cut.axis)] = ir::Dim::fixed(cut.size());
  return one_output(node, std::move(type));
}

std::string slices(const std::vector<Cut>& cuts) {
  std::string result;
  for (const Cut& cut : cuts) {
    result += text(".slice(", cut.axis, ", ", cut.low, ", ", cut.high, ", ", cut.step, ")");
  }
  return result;
}

std::string flips(const std::vector<Cut>& cuts) {
  std::vector<int> axes;
  for (const Cut& cut : cuts) {
    if (cut.reversed) axes.push_back(cut.axis);
  }
  return axes.empty() ? "" : text(".flip(", list(axes), ")");
}

bool is_reversed(const std::vector<Cut>& cuts) { return std::ranges::any_of(cuts, &Cut::reversed); }

bool slice_is_view(const NodeView& node) { return !is_reversed(cuts_of(node, node.input(0).type.shape).value()); }

Work slice_work(const NodeView& node, Samples samples) {
  return slice_is_view(node) ? no_work(node, samples) : copy_work(node, samples);
}

void emit_slice(Emitter& emitter) {
  const std::vector<Cut> cuts = cuts_of(emitter.node(), emitter.node().input(0).type.shape).value();
  if (cuts.empty()) return assign_pattern(emitter, "at::alias($0)", "ATen/ops/alias.h");
  emitter.assign(0, emitter.in(0) + slices(cuts) + flips(cuts), "ATen/core/Tensor.h");
}

Status slice_gradient(GradientBuilder& builder) {
  if (!builder.wants(0)) return Ok{};
  ir::Attributes attributes = builder.forward().attributes();
  attributes.set("shape", builder.forward().input(0).type.shape);
  builder.set_input_gradient(0, builder.add_one(0, "SliceGrad", {builder.output_gradient(0)}, attributes));
  return Ok{};
}

/// Zeros of the sliced input's shape with the gradient in the slice. {shape, and Slice's attributes}
Inferred infer_slice_gradient(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  ir::Shape shape = node.attributes().get_shape("shape");
  GP_TRY(const std::vector<Cut> cuts, cuts_of(node, shape));
  ir::Shape cut_shape = shape;
  for (const Cut& cut : cuts) cut_shape[at_axis(cut.axis)] = ir::Dim::fixed(cut.size());
  if (cut_shape != node.input(0).type.shape) return bad_model(node, "does not fit its slice");
  return one_output(node, {node.input(0).type.dtype, std::move(shape)});
}

Status slice_gradient_gradient(GradientBuilder& builder) {
  if (!builder.wants(0)) return Ok{};
  builder.set_input_gradient(0,
                             builder.add_one(0, "Slice", {builder.output_gradient(0)}, builder.forward().attributes()));
  return Ok{};
}

/// Includes a reversed copy of the gradient if the slice is reversed.
Work slice_gradient_work(const NodeView& node, Samples samples) {
  Work work = copy_work(node, samples);
  const std::vector<Cut> cuts = cuts_of(node, node.output(0).type.shape).value();
  if (is_reversed(cuts)) work.scratch = bytes_of(node.input(0), samples);
  return work;
}

void emit_slice_gradient(Emitter& emitter) {
  const ir::Shape& shape = emitter.node().output(0).type.shape;
  const std::vector<Cut> cuts = cuts_of(emitter.node(), shape).value();
  const std::string whole = emitter.local("whole");
  emitter.statement(text("at::Tensor ", whole, " = ", emitter.in(0), ".new_zeros(", emitter.dims(shape), ");"),
                    "ATen/core/Tensor.h");
  emitter.statement(text(whole, slices(cuts), ".copy_(", emitter.in(0), flips(cuts), ");"), "ATen/core/Tensor.h");
  emitter.assign(0, whole, "ATen/core/Tensor.h");
}

// --- Tile ---

/// Repeats may hold the batch (Dims) or be plain integers.
ir::Shape repeats_of(const NodeView& node) {
  const ir::AttributeValue* value = node.attributes().find("repeats");
  if (value == nullptr) return {};
  if (const auto* dims = std::get_if<ir::Shape>(value)) return *dims;
  ir::Shape result;
  for (int64_t count : node.attributes().get_ints("repeats")) result.push_back(ir::Dim::fixed(count));
  return result;
}

/// A repeated dim that contains the batch has its samples interleaved: mixed.
Result<ir::Shape> tiled(const NodeView& node, const ir::Shape& from, Mixing& mixing) {
  const ir::Shape repeats = repeats_of(node);
  if (repeats.size() != from.size()) return bad_model(node, "needs one repeat for each axis");
  ir::Shape shape;
  for (size_t i = 0; i < from.size(); ++i) {
    const std::optional<ir::Dim> size = multiply(from[i], repeats[i]);
    if (!size) return bad_model(node, text("repeats ", shape_text(from), " too often"));
    if (!from[i].is_fixed() && repeats[i] != ir::Dim::fixed(1)) mixing = Mixing::kMixes;
    shape.push_back(*size);
  }
  return shape;
}

Inferred infer_tile(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  Mixing mixing = Mixing::kNone;
  GP_TRY(ir::Shape shape, tiled(node, node.input(0).type.shape, mixing));
  return one_output(node, {node.input(0).type.dtype, std::move(shape)}, mixing);
}

void emit_tile(Emitter& emitter) {
  emitter.assign(0, text(emitter.in(0), ".repeat(", emitter.dims(repeats_of(emitter.node())), ")"),
                 "ATen/core/Tensor.h");
}

Status tile_gradient(GradientBuilder& builder) {
  if (!builder.wants(0)) return Ok{};
  builder.set_input_gradient(0, builder.add_one(0, "TileGrad", {builder.output_gradient(0)},
                                                {{"repeats", repeats_of(builder.forward())},
                                                 {"shape", builder.forward().input(0).type.shape}}));
  return Ok{};
}

/// Sums the copies. {repeats, shape: of the tiled input}
Inferred infer_tile_gradient(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  Mixing mixing = Mixing::kNone;
  ir::Shape shape = node.attributes().get_shape("shape");
  GP_TRY(const ir::Shape large, tiled(node, shape, mixing));
  if (large != node.input(0).type.shape) return bad_model(node, "does not fit its repeats");
  return one_output(node, {node.input(0).type.dtype, std::move(shape)}, mixing);
}

void emit_tile_gradient(Emitter& emitter) {
  const ir::Shape repeats = repeats_of(emitter.node()), &shape = emitter.node().output(0).type.shape;
  ir::Shape apart;
  std::vector<int64_t> copies;
  for (size_t i = 0; i < shape.size(); ++i) {
    copies.push_back(static_cast<int64_t>(apart.size()));
    apart.push_back(repeats[i]);
    apart.push_back(shape[i]);
  }
  if (shape.empty()) return assign_pattern(emitter, "at::alias($0)", "ATen/ops/alias.h");
  emitter.assign(
      0, text("at::sum(", emitter.in(0), ".reshape(", emitter.dims(apart), "), at::IntArrayRef", list(copies), ")"),
      "ATen/ops/sum.h");
}

// --- entries ---

using Ints = std::vector<int64_t>;

ir::Attributes slice_of(Ints starts, Ints ends, Ints axes, Ints steps) {
  return {
      {"starts", std::move(starts)}, {"ends", std::move(ends)}, {"axes", std::move(axes)}, {"steps", std::move(steps)}};
}

ir::Attributes with_shape(ir::Attributes attributes, const ExampleShape& shape) {
  attributes.set("shape", shape_of(shape));
  return attributes;
}

std::vector<OpDef> concat_and_split_rows() {
  const ir::Attributes split = {{"axis", int64_t{1}}, {"sizes", Ints{2, 1, 3}}};
  return {
      {.name = "Concat",
       .infer = infer_concat,
       .work = copy_work,
       .gradient = concat_gradient,
       .emit = emit_concat,
       .default_axis = 0,
       .sample_sum = as_terms,
       .examples = {{.inputs = {normal({kB, 2, 3}), normal({kB, 1, 3}), normal({kB, 4, 3})},
                     .attributes = {{"axis", int64_t{1}}}},
                    {.inputs = {normal({kB, 2}), normal({kB, 2})}, .attributes = {{"axis", int64_t{0}}}},
                    {.inputs = {normal({kB, 2})}, .attributes = {{"axis", int64_t{1}}}}}},
      {.name = "ConcatGrad",
       .infer = infer_concat_gradient,
       .work = no_work,
       .emit = emit_concat_gradient,
       .is_view = always,
       .examples = {{.inputs = {normal({kB, 7})},
                     .attributes = {{"axis", int64_t{1}}, {"start", shape_of({2})}, {"size", shape_of({4})}}}}},
      {.name = "Split",
       .infer = infer_split,
       .work = no_work,
       .gradient = split_gradient,
       .emit = emit_split,
       .default_axis = 0,
       .is_view = always,
       .sample_sum = as_first_input,
       .examples = {{.inputs = {normal({kB, 6, 2})}, .attributes = split, .outputs = 3}}},
      {.name = "SplitGrad",
       .infer = infer_split_gradient,
       .work = copy_work,
       .emit = emit_split_gradient,
       .examples = {{.inputs = {normal({kB, 2}), absent(), normal({kB, 3})},
                     .attributes = with_shape(split, {kB, 6})}}},
  };
}

std::vector<OpDef> slice_and_tile_rows() {
  const ir::Attributes backwards = slice_of({-1, 1}, {INT64_MIN, 5}, {2, 1}, {-2, 2});
  return {
      {.name = "Slice",
       .infer = infer_slice,
       .work = slice_work,
       .gradient = slice_gradient,
       .emit = emit_slice,
       .is_view = slice_is_view,
       .sample_sum = as_first_input,
       .examples = {{.inputs = {normal({kB, 6, 4})}, .attributes = slice_of({1, -3}, {4, INT64_MAX}, {1, 2}, {1, 1})},
                    {.inputs = {normal({kB, 6, 4})}, .attributes = backwards},
                    {.inputs = {normal({kB, 6})}, .attributes = slice_of({0, 2}, {INT64_MAX, 3}, {0, 1}, {1, 1})}}},
      {.name = "SliceGrad",
       .infer = infer_slice_gradient,
       .work = slice_gradient_work,
       .gradient = slice_gradient_gradient,
       .emit = emit_slice_gradient,
       .examples = {{.inputs = {normal({kB, 2, 2})}, .attributes = with_shape(backwards, {kB, 6, 4})}}},
      {.name = "Tile",
       .infer = infer_tile,
       .work = copy_work,
       .gradient = tile_gradient,
       .emit = emit_tile,
       .examples = {{.inputs = {normal({kB, 2, 3})}, .attributes = {{"repeats", Ints{1, 3, 2}}}},
                    {.inputs = {weight(normal({1, 3}))}, .attributes = {{"repeats", shape_of({kB, 2})}}}}},
      {.name = "TileGrad",
       .infer = infer_tile_gradient,
       .work = copy_work,
       .emit = emit_tile_gradient,
       .examples = {{.inputs = {normal({kB, 6})}, .attributes = with_shape({{"repeats", shape_of({1, 2})}}, {kB, 3})}}},
  };
}

}  // namespace

std::span<const OpDef> movement_ops() {
  static const std::vector<OpDef> rows = [] {
    std::vector<OpDef> all = concat_and_split_rows();
    for (const OpDef& row : slice_and_tile_rows()) all.push_back(row);
    return all;
  }();
  return rows;
}

}  // namespace graphpipe::ops
