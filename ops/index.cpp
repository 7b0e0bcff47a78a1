// Look-ups and updates by integer tensors: Gather, GatherElements, GatherND, ScatterElements, ScatterND.
//
// Gradients of look-ups add up the rows that were read several times. They go through embedding_dense_backward, which
// scatter_adds in the order of the indices on every device and with any number of threads, so that runs repeat to the
// bit. Indices may be negative in ONNX; ATen's kernels differ in whether they accept that, so they are made positive
// where needed. An index out of range ends the run with ATen's error.

#include <algorithm>

#include "ops/emit_helpers.h"
#include "ops/example_helpers.h"
#include "ops/families.h"
#include "ops/gradient_helpers.h"
#include "ops/infer_helpers.h"

namespace graphpipe::ops {
namespace {

using ir::ValueId;

/// Input i as int64 tensor: what all of ATen's index arguments accept.
std::string long_indices(const Emitter& emitter, size_t i) {
  return emitter.node().input(i).type.dtype == ir::DType::kInt64 ? emitter.in(i) : emitter.in(i) + ".to(at::kLong)";
}

/// An expression of indices into a dim, with the negative ones made positive. They are in range: the forward has run.
std::string wrapped(const Emitter& emitter, std::string_view indices, ir::Dim dim) {
  return text(indices, ".remainder(", emitter.dim(dim), ")");
}

/// The same, leaving what is out of range for ATen to refuse. `indices` is a name.
std::string counted_from_end(const Emitter& emitter, std::string_view indices, ir::Dim dim) {
  return text(indices, ".where(", indices, ".ge(0), ", indices, ".add(", emitter.dim(dim), "))");
}

/// Samples stay apart unless the indexed axis holds the batch.
Mixing mixing_along(const ir::Shape& shape, size_t axis) {
  return shape[axis].is_fixed() ? Mixing::kNone : Mixing::kMixes;
}

// --- Gather ---

Inferred infer_gather(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 2, 2));
  GP_TRY_VOID(expect_index(node, {1}));
  const ir::TensorType &data = node.input(0).type, &indices = node.input(1).type;
  GP_TRY(const int axis, axis_attribute(node, "axis", 0, data.shape.size()));
  ir::Shape shape(data.shape.begin(), data.shape.begin() + axis);
  shape.insert(shape.end(), indices.shape.begin(), indices.shape.end());
  shape.insert(shape.end(), data.shape.begin() + axis + 1, data.shape.end());
  return one_output(node, {data.dtype, std::move(shape)}, mixing_along(data.shape, static_cast<size_t>(axis)));
}

void emit_gather(Emitter& emitter) {
  const NodeView& node = emitter.node();
  const int axis = axis_attribute(node, "axis", 0, node.input(0).type.shape.size()).value();
  const std::string list = emitter.local("indices");
  emitter.statement(text("c10::List<std::optional<at::Tensor>> ", list, ";"), "ATen/core/List.h");
  for (int i = 0; i < axis; ++i) emitter.statement(text(list, ".push_back(std::nullopt);"), "ATen/core/List.h");
  emitter.statement(text(list, ".push_back(", long_indices(emitter, 1), ");"), "ATen/core/List.h");
  emitter.assign(0, text("at::index(", emitter.in(0), ", ", list, ")"), "ATen/ops/index.h");
}

/// The gradient is of phase W where the data is a weight, and then touches only the rows that were looked up.
Status gather_gradient(GradientBuilder& builder) {
  if (!builder.wants(0)) return Ok{};
  const NodeView& node = builder.forward();
  GP_TRY(const int axis, axis_attribute(node, "axis", 0, node.input(0).type.shape.size()));
  const bool weight = node.input(0).batch == ir::BatchKind::kNone;
  builder.set_input_gradient(0, builder.add_one(0, weight ? "GatherGradWeight" : "GatherGradData",
                                                {builder.output_gradient(0), builder.input(1)},
                                                {{"axis", int64_t{axis}}, {"shape", node.input(0).type.shape}}));
  return Ok{};
}

/// (gradient, indices){axis, shape: of the data}
Inferred infer_gather_gradient(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 2, 2));
  GP_TRY_VOID(expect_index(node, {1}));
  ir::Shape shape = node.attributes().get_shape("shape");
  GP_TRY(const int axis, axis_attribute(node, "axis", 0, shape.size()));
  if (node.input(0).type.shape.size() + 1 != shape.size() + node.input(1).type.shape.size()) {
    return bad_model(node, "does not fit its look-up");
  }
  const Mixing mixing = mixing_along(shape, static_cast<size_t>(axis));
  return one_output(node, {node.input(0).type.dtype, std::move(shape)}, mixing);
}

/// With the looked-up axis in front: [indices, rest] rows are added into [rows, rest].
void emit_gather_gradient(Emitter& emitter) {
  const NodeView& node = emitter.node();
  const ir::Shape& shape = node.output(0).type.shape;
  const auto axis = static_cast<size_t>(axis_attribute(node, "axis", 0, shape.size()).value());
  const ir::Shape& index_shape = node.input(1).type.shape;
  const ir::Dim count = product_of(index_shape, 0, index_shape.size()), rows = shape[axis];
  const ir::Dim before = product_of(shape, 0, axis), after = product_of(shape, axis + 1, shape.size());
  const ir::Dim width = *multiply(before, after);
  const bool leading = before == ir::Dim::fixed(1);
  const std::string indices =
      text(wrapped(emitter, long_indices(emitter, 1), rows), ".reshape({", emitter.dim(count), "})");
  const std::string gradient = leading ? text(emitter.in(0), ".reshape(", emitter.dims({count, after}), ")")
                                       : text(emitter.in(0), ".reshape(", emitter.dims({before, count, after}),
                                              ").permute({1, 0, 2}).reshape(", emitter.dims({count, width}), ")");
  const std::string sums =
      text("at::embedding_dense_backward(", gradient, ", ", indices, ", ", emitter.dim(rows), ", -1, false)");
  const std::string back =
      leading ? "" : text(".reshape(", emitter.dims({rows, before, after}), ").permute({1, 0, 2})");
  emitter.assign(0, text(sums, back, ".reshape(", emitter.dims(shape), ")"), "ATen/ops/embedding_dense_backward.h");
}

// --- GatherElements, ScatterElements ---

/// Refuses what ATen would read beyond; returns the axis.
Result<int> element_axis(const NodeView& node, const ir::Shape& data, const ir::Shape& indices) {
  GP_TRY(const int axis, axis_attribute(node, "axis", 0, data.size()));
  if (indices.size() != data.size()) return bad_model(node, "needs data and indices of one rank");
  for (size_t i = 0; i < data.size(); ++i) {
    if (static_cast<int>(i) == axis || data[i] == indices[i]) continue;
    if (data[i].is_fixed() && indices[i].is_fixed() && indices[i].factor <= data[i].factor) continue;
    return bad_model(node, text("cannot index ", shape_text(data), " by ", shape_text(indices)));
  }
  return axis;
}

Inferred infer_gather_elements(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 2, 2));
  GP_TRY_VOID(expect_index(node, {1}));
  const ir::TensorType &data = node.input(0).type, &indices = node.input(1).type;
  GP_TRY(const int axis, element_axis(node, data.shape, indices.shape));
  return one_output(node, {data.dtype, indices.shape}, mixing_along(data.shape, static_cast<size_t>(axis)));
}

/// Declares the positive indices of input i into `data` along the axis and returns their name.
std::string positive_indices(Emitter& emitter, size_t i, const ir::Shape& data, int axis) {
  const std::string raw = emitter.local("raw"), indices = emitter.local("indices");
  emitter.statement(text("at::Tensor ", raw, " = ", long_indices(emitter, i), ";"), "ATen/core/Tensor.h");
  emitter.statement(
      text("at::Tensor ", indices, " = ", counted_from_end(emitter, raw, data[static_cast<size_t>(axis)]), ";"),
      "ATen/core/Tensor.h");
  return indices;
}

int checked_axis(const NodeView& node, const ir::Shape& shape) {
  return axis_attribute(node, "axis", 0, shape.size()).value();
}

void emit_gather_elements(Emitter& emitter) {
  const ir::Shape& data = emitter.node().input(0).type.shape;
  const int axis = checked_axis(emitter.node(), data);
  const std::string indices = positive_indices(emitter, 1, data, axis);
  emitter.assign(0, text("at::gather(", emitter.in(0), ", ", axis, ", ", indices, ")"), "ATen/ops/gather.h");
}

Status gather_elements_gradient(GradientBuilder& builder) {
  if (!builder.wants(0)) return Ok{};
  const NodeView& node = builder.forward();
  builder.set_input_gradient(0, builder.add_one(0, "GatherElementsGrad", {builder.output_gradient(0), builder.input(1)},
                                                {{"axis", int64_t{checked_axis(node, node.input(0).type.shape)}},
                                                 {"shape", node.input(0).type.shape}}));
  return Ok{};
}

/// (gradient, indices){axis, shape: of the data}
Inferred infer_gather_elements_gradient(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 2, 2));
  GP_TRY_VOID(expect_index(node, {1}));
  ir::Shape shape = node.attributes().get_shape("shape");
  GP_TRY(const int axis, element_axis(node, shape, node.input(1).type.shape));
  const Mixing mixing = mixing_along(shape, static_cast<size_t>(axis));
  return one_output(node, {node.input(0).type.dtype, std::move(shape)}, mixing);
}

void emit_gather_elements_gradient(Emitter& emitter) {
  const ir::Shape& shape = emitter.node().output(0).type.shape;
  const int axis = checked_axis(emitter.node(), shape);
  const std::string indices = positive_indices(emitter, 1, shape, axis);
  emitter.assign(0,
                 text("at::scatter_add(", emitter.in(0), ".new_zeros(", emitter.dims(shape), "), ", axis, ", ", indices,
                      ", ", emitter.in(0), ")"),
                 "ATen/ops/scatter_add.h");
}

/// Whether updates are added to the data; other reductions than none and add are refused.
Inferred infer_scatter_elements(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 3, 3));
  GP_TRY_VOID(expect_index(node, {1}));
  GP_TRY_VOID(expect_same_dtype(node, {0, 2}));
  GP_TRY_VOID(scatter_adds(node));
  const ir::TensorType &data = node.input(0).type, &indices = node.input(1).type;
  GP_TRY(const int axis, element_axis(node, data.shape, indices.shape));
  if (node.input(2).type.shape != indices.shape) return bad_model(node, "needs as many updates as indices");
  return one_output(node, data, mixing_along(data.shape, static_cast<size_t>(axis)));
}

void emit_scatter_elements(Emitter& emitter) {
  const NodeView& node = emitter.node();
  const ir::Shape& data = node.input(0).type.shape;
  const int axis = checked_axis(node, data);
  const std::string indices = positive_indices(emitter, 1, data, axis);
  const bool add = scatter_adds(node).value();
  // The gradient with respect to the data has no updates: their places become zero.
  const std::string updates = node.has_input(2) ? emitter.in(2) : "0";
  emitter.assign(
      0, text(add ? "at::scatter_add(" : "at::scatter(", emitter.in(0), ", ", axis, ", ", indices, ", ", updates, ")"),
      add ? "ATen/ops/scatter_add.h" : "ATen/ops/scatter.h");
}

Status scatter_elements_gradient(GradientBuilder& builder) {
  const NodeView& node = builder.forward();
  const ir::Attributes axis = {{"axis", int64_t{checked_axis(node, node.input(0).type.shape)}}};
  const std::vector<ValueId> inputs = {builder.output_gradient(0), builder.input(1)};
  GP_TRY(const bool add, scatter_adds(node));
  if (builder.wants(0)) {
    builder.set_input_gradient(
        0, add ? builder.output_gradient(0) : builder.add_one(0, "ScatterElementsGradData", inputs, axis));
  }
  if (builder.wants(2)) builder.set_input_gradient(2, builder.add_one(2, "GatherElements", inputs, axis));
  return Ok{};
}

Inferred infer_scatter_elements_gradient(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 2, 2));
  GP_TRY_VOID(expect_index(node, {1}));
  const ir::TensorType& data = node.input(0).type;
  GP_TRY(const int axis, element_axis(node, data.shape, node.input(1).type.shape));
  return one_output(node, data, mixing_along(data.shape, static_cast<size_t>(axis)));
}

// --- rows ---

using Axis = ir::Attributes;
Axis along(int64_t axis) { return {{"axis", axis}}; }
Axis along(int64_t axis, const ExampleShape& shape) { return {{"axis", axis}, {"shape", shape_of(shape)}}; }

std::vector<OpDef> gather_rows() {
  const std::vector<Example> gradient_example = {
      {.inputs = {normal({kB, 3, 2}), integers({kB, 3}, 0, 5)}, .attributes = along(0, {5, 2})}};
  OpDef data{.name = "GatherGradData",
             .infer = infer_gather_gradient,
             .work = copy_work,
             .emit = emit_gather_gradient,
             .examples = gradient_example};
  OpDef of_weight = data;
  of_weight.name = "GatherGradWeight";
  return {
      {.name = "Gather",
       .infer = infer_gather,
       .work = copy_work,
       .gradient = gather_gradient,
       .emit = emit_gather,
       .examples = {{.inputs = {weight(normal({5, 4})), integers({kB, 3}, -5, 5)}, .attributes = along(0)},
                    {.inputs = {normal({kB, 4, 3}), weight(integers({}, -1, 0))}, .attributes = along(1)},
                    {.inputs = {normal({kB, 4, 3}), weight(integers({2, 2}, 0, 4, ir::DType::kInt32))},
                     .attributes = along(1)},
                    {.inputs = {integers({kB, 4}, 0, 9), weight(integers({2}, 0, 4))}, .attributes = along(-1)}}},
      std::move(data),
      std::move(of_weight),
      {.name = "GatherElements",
       .infer = infer_gather_elements,
       .work = copy_work,
       .gradient = gather_elements_gradient,
       .emit = emit_gather_elements,
       .examples = {{.inputs = {normal({kB, 4, 3}), integers({kB, 5, 3}, -4, 4)}, .attributes = along(1)},
                    {.inputs = {normal({kB, 4}), integers({kB, 2}, 0, 4)}, .attributes = along(1)}}},
      {.name = "GatherElementsGrad",
       .infer = infer_gather_elements_gradient,
       .work = copy_work,
       .emit = emit_gather_elements_gradient,
       .examples = {{.inputs = {normal({kB, 3}), integers({kB, 3}, 0, 4)}, .attributes = along(1, {kB, 4})}}},
  };
}

std::vector<OpDef> scatter_rows() {
  Axis add = along(1);
  add.set("reduction", std::string("add"));
  // Without a reduction, places must not be named twice: the order of writing would decide.
  const ExampleInput once = integers({kB, 1}, -4, 4);
  return {
      {.name = "ScatterElements",
       .infer = infer_scatter_elements,
       .work = copy_work,
       .gradient = scatter_elements_gradient,
       .emit = emit_scatter_elements,
       .examples = {{.inputs = {normal({kB, 4}), once, normal({kB, 1})}, .attributes = along(1)},
                    {.inputs = {normal({kB, 4}), integers({kB, 6}, 0, 4), normal({kB, 6})}, .attributes = add}}},
      {.name = "ScatterElementsGradData",
       .infer = infer_scatter_elements_gradient,
       .work = copy_work,
       .emit = emit_scatter_elements,
       .examples = {{.inputs = {normal({kB, 4}), once}, .attributes = along(1)}}},
  };
}

}  // namespace

std::span<const OpDef> index_ops() {
  static const std::vector<OpDef> rows = [] {
    std::vector<OpDef> all = gather_rows();
    for (const OpDef& row : scatter_rows()) all.push_back(row);
    return all;
  }();
  return rows;
}

}  // namespace graphpipe::ops
