// Look-ups by integer tensors: Gather and GatherElements; and the numbering of picked places, by which rows are looked
// up.
//
// The gradients of look-ups add up the contributions to rows that were read several times. They use
// embedding_dense_backward, which adds in the order of the indices on every device and with any number of threads, so
// that runs are bit-reproducible. The gradient of a table of weights is accumulated by rows
// (runtime/kernels/table_rows.h). Indices may be negative in ONNX; ATen's kernels differ in whether they accept that,
// so they are made non-negative where needed. An index out of range ends the run with ATen's error.

#include "ops/emit_helpers.h"
#include "ops/example_helpers.h"
#include "ops/families.h"
#include "ops/index_helpers.h"
#include "ops/infer_helpers.h"
#include "ops/sample_sum.h"

namespace graphpipe::ops {
namespace {

using ir::ValueId;

/// Indices into a dim, with the negative ones made non-negative. They are in range: the forward has run.
std::string wrapped(const Emitter& emitter, std::string_view indices, ir::Dim dim) {
  return text(indices, ".remainder(", emitter.dim(dim), ")");
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
  std::string indices;
  for (int i = 0; i < axis; ++i) indices += "at::Tensor(), ";
  indices += long_indices(emitter, 1);
  emitter.assign(0, text("graphpipe::runtime::index(", emitter.in(0), ", {", indices, "})"), kTensorLists);
}

bool is_along_first_axis(const NodeView& node) {
  return axis_attribute(node, "axis", 0, node.input(0).type.shape.size()).value() == 0;
}

/// The row that look-ups do not train (nn.Embedding's padding_idx), which no ONNX operator can express; -1: all train.
constexpr std::string_view kPaddingRow = "padding_row";
int64_t padding_row(const NodeView& node) { return node.attributes().get_int(kPaddingRow, -1); }

/// The gradient has phase W if the data is a weight, and then only touches the rows that were looked up.
Status gather_gradient(GradientBuilder& builder) {
  if (!builder.wants(0)) return Ok{};
  const NodeView& node = builder.forward();
  GP_TRY(const int axis, axis_attribute(node, "axis", 0, node.input(0).type.shape.size()));
  const bool weight = node.input(0).batch == ir::BatchKind::kNone;
  const std::string_view of_weight = axis == 0 ? "GatherGradRows" : "GatherGradWeight";
  ir::Attributes attributes = {{"axis", int64_t{axis}}, {"shape", node.input(0).type.shape}};
  if (padding_row(node) >= 0) attributes.set(kPaddingRow, padding_row(node));
  builder.set_input_gradient(0, builder.add_one(0, weight ? of_weight : "GatherGradData",
                                                {builder.output_gradient(0), builder.input(1)}, std::move(attributes)));
  return Ok{};
}

/// (gradient, indices){axis, shape: of the data, padding_row}
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
  // The kernel accumulates in the gradient's type, where a 16-bit sum stops growing after a few hundred terms.
  const ir::DType type = node.output(0).type.dtype;
  const std::string widened = is_16_bits(type) ? ".to(at::kFloat)" : "";
  const std::string narrowed = is_16_bits(type) ? text(".to(", scalar_type(type), ")") : "";
  const std::string sums = text("at::embedding_dense_backward(", gradient, widened, ", ", indices, ", ",
                                emitter.dim(rows), ", ", padding_row(node), ", false)", narrowed);
  const std::string back =
      leading ? "" : text(".reshape(", emitter.dims({rows, before, after}), ").permute({1, 0, 2})");
  emitter.assign(0, text(sums, back, ".reshape(", emitter.dims(shape), ")"), "ATen/ops/embedding_dense_backward.h");
}

void accumulate_gather_gradient(Emitter& emitter, std::string_view place) {
  const NodeView& node = emitter.node();
  emitter.statement(
      text("graphpipe::runtime::add_table_rows(", place, ", ", emitter.in(0), ", ", long_indices(emitter, 1), ", ",
           emitter.dims(node.output(0).type.shape), ", ", padding_row(node), ")"),
      "runtime/kernels/table_rows.h");
}

/// Only the part of the data that is looked up is read.
Work gather_work(const NodeView& node, Samples samples) {
  Work work{.bytes = 2 * bytes_of(node.output(0), samples) + bytes_of(node.input(1), samples)};
  work.scratch = index_scratch(node, 1, samples, false);
  return work;
}

/// By rows: the gradient is read, and the rows are zeroed and then written.
Work gather_rows_gradient_work(const NodeView& node, Samples samples) {
  Work work{.bytes = 3 * bytes_of(node.input(0), samples) + bytes_of(node.input(1), samples)};
  work.scratch = index_scratch(node, 1, samples, false);
  return work;
}

/// If the axis is not the first, the gradient and the sums are transposed, which copies them.
Work gather_gradient_work(const NodeView& node, Samples samples) {
  Work work = copy_work(node, samples);
  work.scratch = index_scratch(node, 1, samples, false);
  const double copies = bytes_of(node.input(0), samples) + bytes_of(node.output(0), samples);
  if (node.attributes().get_int("axis", 0) != 0) work.scratch += copies;
  if (is_16_bits(node.output(0).type.dtype)) work.scratch += 2 * copies;
  return work;
}

// --- GatherElements, ScatterElements ---

Inferred infer_gather_elements(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 2, 2));
  GP_TRY_VOID(expect_index(node, {1}));
  const ir::TensorType &data = node.input(0).type, &indices = node.input(1).type;
  GP_TRY(const int axis, element_axis(node, data.shape, indices.shape));
  return one_output(node, {data.dtype, indices.shape}, mixing_along(data.shape, static_cast<size_t>(axis)));
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
                 text("graphpipe::runtime::scatter_add(", emitter.in(0), ".new_zeros(", emitter.dims(shape), "), ",
                      axis, ", ", indices, ", ", emitter.in(0), ")"),
                 kFixedOrder);
}

// --- entries ---

/// Rows of the table; negative ids count from the end, but not in nn.Embedding.
wire::IdBounds row_ids(const NodeView& node, size_t i) {
  const ir::Shape& shape = node.input(0).type.shape;
  int64_t axis = node.attributes().get_int("axis", 0);
  if (axis < 0) axis += std::ssize(shape);
  if (i != 1 || axis < 0 || axis >= std::ssize(shape)) return {};
  const ir::Dim rows = shape[static_cast<size_t>(axis)];
  if (!rows.is_fixed()) return {};
  const bool from_end = node.attributes().get_int("from_first_row", 0) == 0;
  return {.low = from_end ? -rows.factor : 0, .high = rows.factor};
}

using Axis = ir::Attributes;
Axis along(int64_t axis) { return {{"axis", axis}}; }
Axis along(int64_t axis, const ExampleShape& shape) { return {{"axis", axis}, {"shape", shape_of(shape)}}; }

// --- NumberPlaces{elements}: of a mask [samples, places], how many are picked before each picked place ---

Inferred infer_number_places(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  const ir::TensorType& mask = node.input(0).type;
  if (mask.dtype != ir::DType::kBool || mask.shape.size() != 2) return bad_model(node, "needs a mask of two axes");
  return one_output(node, {ir::DType::kInt64, mask.shape}, mixing_along(mask.shape, 1));
}

void emit_number_places(Emitter& emitter) {
  emitter.assign(0,
                 text("graphpipe::runtime::number_places(", emitter.in(0), ", ",
                      emitter.node().attributes().get_int("elements", 0), ")"),
                 "runtime/kernels/number_places.h");
}

// NOLINTNEXTLINE(readability-function-size): a table
std::vector<OpDef> gather_rows() {
  const std::vector<Example> gradient_example = {
      {.inputs = {normal({kB, 3, 2}), integers({kB, 3}, 0, 5)}, .attributes = along(0, {5, 2})}};
  OpDef data{.name = "GatherGradData",
             .infer = infer_gather_gradient,
             .work = gather_gradient_work,
             .emit = emit_gather_gradient,
             .examples = gradient_example};
  OpDef of_weight = data;
  of_weight.name = "GatherGradWeight";
  OpDef of_rows = data;
  of_rows.name = "GatherGradRows";
  of_rows.work = gather_rows_gradient_work;
  of_rows.accumulate = accumulate_gather_gradient;
  of_rows.adds_rows = true;
  return {
      {.name = "Gather",
       .infer = infer_gather,
       .work = gather_work,
       .gradient = gather_gradient,
       .emit = emit_gather,
       .roles = {ParameterRole::kEmbedding},
       .default_axis = 0,
       .sample_sum = as_first_beside_constant,
       .ids = row_ids,
       .looks_up_rows = is_along_first_axis,
       .examples = {{.inputs = {weight(normal({5, 4})), integers({kB, 3}, -5, 5)}, .attributes = along(0)},
                    {.inputs = {normal({kB, 4, 3}), weight(integers({}, -1, 0))}, .attributes = along(1)},
                    {.inputs = {normal({kB, 4, 3}), weight(integers({2, 2}, 0, 4, ir::DType::kInt32))},
                     .attributes = along(1)},
                    {.inputs = {integers({kB, 4}, 0, 9), weight(integers({2}, 0, 4))}, .attributes = along(-1)}}},
      std::move(data),
      std::move(of_weight),
      std::move(of_rows),
      {.name = "GatherElements",
       .infer = infer_gather_elements,
       .work = indexed_copy_work,
       .gradient = gather_elements_gradient,
       .emit = emit_gather_elements,
       .default_axis = 0,
       .ids = row_ids,
       .examples = {{.inputs = {normal({kB, 4, 3}), integers({kB, 5, 3}, -4, 4)}, .attributes = along(1)},
                    {.inputs = {normal({kB, 4}), integers({kB, 2}, 0, 4)}, .attributes = along(1)}}},
      {.name = "GatherElementsGrad",
       .infer = infer_gather_elements_gradient,
       .work = indexed_copy_work,
       .emit = emit_gather_elements_gradient,
       .examples = {{.inputs = {normal({kB, 3}), integers({kB, 3}, 0, 4)}, .attributes = along(1, {kB, 4})}}},
      {.name = "NumberPlaces",
       .infer = infer_number_places,
       .work = copy_work,
       .temporaries = 1.25,
       .emit = emit_number_places,
       // All of them: a random mask would pick a different number in each sample.
       .examples = {{.inputs = {integers({kB, 6}, 1, 2, ir::DType::kBool)}, .attributes = {{"elements", int64_t{6}}}}}},
  };
}

}  // namespace

std::span<const OpDef> index_ops() {
  static const std::vector<OpDef> rows = gather_rows();
  return rows;
}

}  // namespace graphpipe::ops
