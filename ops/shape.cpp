// Ops that give the same elements another shape or type: Reshape, Flatten, Squeeze, Unsqueeze, Transpose, Expand,
// Identity, Cast, BitCast; and those that create elements: Full, Iota.
//
// Reshape keeps the batch axis if a sample's elements remain a slice of it. With P the product of the dims before the
// batch axis, element (p, sample, r) is at (p * B + sample) * R + r; so the samples stay separate exactly if P is the
// same before and after. [T, B, H*D] to [T, B*H, D] keeps them, [T, B, D] to [T*B, D] does not.
//
// OneSample is the boundary of a model whose file describes a single sample: its output has as many elements as its
// input if there is one sample, which is the case in every micro-batch of such a model. Without a leading batch axis
// the output combines the samples.

#include <algorithm>
#include <numeric>

#include "ops/emit_helpers.h"
#include "ops/example_helpers.h"
#include "ops/families.h"
#include "ops/gradient_helpers.h"
#include "ops/infer_helpers.h"
#include "ops/sample_sum.h"

namespace graphpipe::ops {
namespace {

// --- reshaping ---

/// The product of the fixed dims before the first dim that holds the batch.
int64_t rows_before_batch(const ir::Shape& shape) {
  int64_t rows = 1;
  for (ir::Dim dim : shape) {
    if (!dim.is_fixed()) break;
    rows *= dim.factor;
  }
  return rows;
}

/// The output has the elements of input 0 in a new shape with as many elements.
Inferred reshaped(const NodeView& node, ir::Shape shape) {
  const ir::TensorType& from = node.input(0).type;
  const std::optional<ir::Dim> before = ir::element_count(from.shape), after = ir::element_count(shape);
  if (!after || before != after) {
    return problem_at(node, before && after && before->power != after->power ? Code::kBatchNotFound : Code::kBadModel,
                      text("cannot turn ", shape_text(from.shape), " into ", shape_text(shape)),
                      "if the batch size is a constant in the model, export it with a named batch axis");
  }
  const bool apart = rows_before_batch(from.shape) == rows_before_batch(shape);
  return one_output(node, {from.dtype, std::move(shape)}, apart ? Mixing::kNone : Mixing::kMixes);
}

/// Resolves ONNX's 0 (copy the input's dim) and -1 (the remaining size).
Result<ir::Shape> resolved_target(const NodeView& node, ir::Shape target) {
  const ir::Shape& from = node.input(0).type.shape;
  const bool zero_copies = node.attributes().get_int("allowzero", 0) == 0;
  std::optional<size_t> open;
  std::optional<ir::Dim> known = ir::Dim::fixed(1);
  for (size_t i = 0; i < target.size(); ++i) {
    if (target[i] == ir::Dim::fixed(-1)) {
      if (open) return bad_model(node, "leaves two dims open");
      open = i;
      continue;
    }
    if (target[i].factor == 0 && zero_copies) {
      if (i >= from.size()) return bad_model(node, text("copies dim ", i, " of an input of rank ", from.size()));
      target[i] = from[i];
    }
    known = multiply(*known, target[i]);
    if (!known) return bad_model(node, text("has the impossible target ", shape_text(target)));
  }
  if (!open) return target;
  const std::optional<ir::Dim> count = ir::element_count(from);
  const std::optional<ir::Dim> rest = count ? divide(*count, *known) : std::nullopt;
  if (!rest) {
    return bad_model(node, text("cannot fill the open dim of ", shape_text(target), " from ", shape_text(from)));
  }
  target[*open] = *rest;
  return target;
}

Inferred infer_reshape(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  if (!node.attributes().has("shape")) return bad_model(node, "has no target shape");
  GP_TRY(ir::Shape target, resolved_target(node, node.attributes().get_shape("shape")));
  return reshaped(node, std::move(target));
}

Inferred infer_flatten(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  const ir::Shape& from = node.input(0).type.shape;
  int64_t axis = node.attributes().get_int("axis", 1);
  const auto rank = static_cast<int64_t>(from.size());
  if (axis < -rank || axis > rank) return bad_model(node, text("has axis ", axis, ", but the tensor has rank ", rank));
  if (axis < 0) axis += rank;
  ir::Shape shape = {ir::Dim::fixed(1), ir::Dim::fixed(1)};
  for (size_t i = 0; i < from.size(); ++i) {
    ir::Dim& side = shape[static_cast<int64_t>(i) < axis ? 0 : 1];
    const std::optional<ir::Dim> product = multiply(side, from[i]);
    if (!product) return bad_model(node, text("has the impossible input shape ", shape_text(from)));
    side = *product;
  }
  return reshaped(node, std::move(shape));
}

Inferred infer_squeeze(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  const ir::Shape& from = node.input(0).type.shape;
  GP_TRY(const std::vector<int> axes, normalized_axes(node, node.attributes().get_ints("axes"), from.size()));
  const bool all = !node.attributes().has("axes");
  ir::Shape shape;
  for (size_t i = 0; i < from.size(); ++i) {
    const bool one = from[i] == ir::Dim::fixed(1);
    const bool named = std::ranges::find(axes, static_cast<int>(i)) != axes.end();
    if (named && !one) return bad_model(node, text("drops axis ", i, " of size ", dim_text(from[i])));
    if (!(named || (all && one))) shape.push_back(from[i]);
  }
  return reshaped(node, std::move(shape));
}

Inferred infer_unsqueeze(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  ir::Shape shape = node.input(0).type.shape;
  const std::vector<int64_t> given = node.attributes().get_ints("axes");
  if (shape.size() + given.size() > kMaxRank) {
    return problem_at(node, Code::kLimitExceeded, text("adds ", given.size(), " axes"), "reshape to fewer dimensions");
  }
  GP_TRY(const std::vector<int> axes, normalized_axes(node, given, shape.size() + given.size()));
  for (int axis : axes) shape.insert(shape.begin() + axis, ir::Dim::fixed(1));
  return reshaped(node, std::move(shape));
}

void emit_reshape(Emitter& emitter) {
  emitter.assign(0, text("at::reshape(", emitter.in(0), ", ", emitter.dims(emitter.node().output(0).type.shape), ")"),
                 "ATen/ops/reshape.h");
}

Status reshape_gradient(GradientBuilder& builder) {
  if (!builder.wants(0)) return Ok{};
  builder.set_input_gradient(0,
                             builder.add_one(0, "Reshape", {builder.output_gradient(0)}, target_attribute(builder, 0)));
  return Ok{};
}

// --- a sample alone ---

/// The product of the factors: the number of elements if there is one sample.
std::optional<ir::Dim> elements_of_one(ir::Shape shape) {
  for (ir::Dim& dim : shape) dim.power = 0;
  return ir::element_count(shape);
}

Inferred infer_one_sample(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  const ir::TensorType& from = node.input(0).type;
  ir::Value value{.type = {from.dtype, node.attributes().get_shape("shape")}, .batch = ir::BatchKind::kMixed};
  const ir::Shape& shape = value.type.shape;
  const std::optional<ir::Dim> before = elements_of_one(from.shape), after = elements_of_one(shape);
  if (!before || before != after)
    return bad_model(node, text("cannot turn one sample of ", shape_text(from.shape), " into ", shape_text(shape)));
  const auto varies = [](ir::Dim dim) { return !dim.is_fixed(); };
  if (!shape.empty() && shape.front() == ir::Dim::batch() && std::ranges::count_if(shape, varies) == 1) {
    value.batch = ir::BatchKind::kAxis;
    value.batch_axis = 0;
  }
  return checked(node, {std::move(value)});
}

Status one_sample_gradient(GradientBuilder& builder) {
  if (!builder.wants(0)) return Ok{};
  builder.set_input_gradient(
      0, builder.add_one(0, "OneSample", {builder.output_gradient(0)}, target_attribute(builder, 0)));
  return Ok{};
}

// --- transposing ---

Result<std::vector<int>> permutation(const NodeView& node) {
  const size_t rank = node.input(0).type.shape.size();
  std::vector<int64_t> perm = node.attributes().get_ints("perm");
  if (!node.attributes().has("perm")) {
    for (size_t i = 0; i < rank; ++i) perm.push_back(static_cast<int64_t>(rank - 1 - i));
  }
  GP_TRY_VOID(normalized_axes(node, perm, rank));
  if (perm.size() != rank) return bad_model(node, text("has ", perm.size(), " axes in perm for rank ", rank));
  std::vector<int> result;
  for (int64_t axis : perm) result.push_back(static_cast<int>(axis < 0 ? axis + static_cast<int64_t>(rank) : axis));
  return result;
}

Inferred infer_transpose(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  GP_TRY(const std::vector<int> perm, permutation(node));
  const ir::TensorType& from = node.input(0).type;
  ir::Shape shape;
  for (int axis : perm) shape.push_back(from.shape[static_cast<size_t>(axis)]);
  return one_output(node, {from.dtype, std::move(shape)});
}

void emit_transpose(Emitter& emitter) {
  emitter.assign(0, text("at::permute(", emitter.in(0), ", ", list(permutation(emitter.node()).value()), ")"),
                 "ATen/ops/permute.h");
}

Status transpose_gradient(GradientBuilder& builder) {
  if (!builder.wants(0)) return Ok{};
  GP_TRY(const std::vector<int> perm, permutation(builder.forward()));
  std::vector<int64_t> inverse(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) inverse[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  builder.set_input_gradient(0, builder.add_one(0, "Transpose", {builder.output_gradient(0)}, {{"perm", inverse}}));
  return Ok{};
}

// --- expanding ---

Inferred infer_expand(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  const ir::TensorType& from = node.input(0).type;
  GP_TRY(ir::Shape shape, broadcast_shapes(node, from.shape, node.attributes().get_shape("shape")));
  return one_output(node, {from.dtype, std::move(shape)});
}

void emit_expand(Emitter& emitter) {
  emitter.assign(0, text(emitter.in(0), ".expand(", emitter.dims(emitter.node().output(0).type.shape), ")"),
                 "ATen/core/Tensor.h");
}

Status pass_first_gradient(GradientBuilder& builder) {
  pass_gradient(builder, 0);
  return Ok{};
}

// --- identity and type ---

void emit_identity(Emitter& emitter) { assign_pattern(emitter, "at::alias($0)", "ATen/ops/alias.h"); }

Inferred infer_identity(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  return one_output(node, node.input(0).type);
}

/// The attribute "to", a dtype name.
Result<ir::DType> target_dtype(const NodeView& node) {
  const std::string name = node.attributes().get_string("to", "f32");
  const std::optional<ir::DType> dtype = ir::dtype_of_name(name);
  if (!dtype) {
    return problem_at(node, Code::kUnsupportedType, text("asks for the element type ", quoted(ModelText(name))),
                      "use one of f32, f64, f16, bf16, i64, i32, i16, i8, u8, bool, u16, u32, u64");
  }
  return *dtype;
}

Inferred infer_cast(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  GP_TRY(const ir::DType dtype, target_dtype(node));
  return one_output(node, {dtype, node.input(0).type.shape});
}

void emit_cast(Emitter& emitter) {
  const ir::DType from = emitter.node().input(0).type.dtype, to = emitter.node().output(0).type.dtype;
  if (from == ir::DType::kFloat4E2M1 || wire::is_stored_only(to)) {
    const bool saturate = emitter.node().attributes().get_int("saturate", 1) != 0;
    const std::string round = emitter.node().attributes().get_string("round_mode", "up");
    const std::string rounding = round == "nearest" ? "kNearest" : round == "down" ? "kDown" : "kUp";
    const auto named = [](ir::DType type) {
      return text("graphpipe::wire::ElementType::", wire::find_element_type(type)->enumerator);
    };
    return emitter.assign(
        0,
        text("graphpipe::runtime::cast_stored(", emitter.in(0), ", ", named(from), ", ", named(to), ", ",
             saturate ? "true" : "false", ", graphpipe::runtime::PowerRounding::", rounding, ")"),
        "runtime/kernels/stored_types.h");
  }
  const auto is_in_loops = [](ir::DType type) { return type == ir::DType::kFloat32 || type == ir::DType::kBFloat16; };
  if (from != to && is_in_loops(from) && is_in_loops(to))
    return emitter.assign(0, text("graphpipe::runtime::cast(", emitter.in(0), ", ", scalar_type(to), ")"),
                          "runtime/kernels/bfloats.h");
  emitter.assign(0, text(emitter.in(0), ".to(", scalar_type(to), ")"), "ATen/core/Tensor.h");
}

Status cast_gradient(GradientBuilder& builder) {
  const ir::DType from = builder.forward().input(0).type.dtype, to = builder.forward().output(0).type.dtype;
  if (!builder.wants(0) || !ir::is_floating(from) || !ir::is_floating(to)) return Ok{};
  builder.set_input_gradient(
      0, builder.add_one(0, "Cast", {builder.output_gradient(0)}, {{"to", std::string(ir::dtype_name(from))}}));
  return Ok{};
}

// --- BitCast{to}: the same bits as another type of the same size ---

Inferred infer_bit_cast(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  GP_TRY(const ir::DType dtype, target_dtype(node));
  const ir::TensorType& from = node.input(0).type;
  const wire::ElementTypeInfo &old_row = *wire::find_element_type(from.dtype),
                              &new_row = *wire::find_element_type(dtype);
  if (old_row.bytes != new_row.bytes || old_row.packed != 1 || new_row.packed != 1)
    return problem_at(node, Code::kUnsupportedType,
                      text("reads the bits of ", ir::dtype_name(from.dtype), " as ", ir::dtype_name(dtype)),
                      "use a type of the same size, of a byte or more");
  return one_output(node, {dtype, from.shape});
}

void emit_bit_cast(Emitter& emitter) {
  emitter.assign(0, text(emitter.in(0), ".view(", scalar_type(emitter.node().output(0).type.dtype), ")"),
                 "ATen/core/Tensor.h");
}

// --- made from nothing ---

Inferred infer_full(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 0, 0));
  GP_TRY(const ir::DType dtype, target_dtype(node));
  return one_output(node, {dtype, node.attributes().get_shape("shape")});
}

std::string constant_of(const NodeView& node, std::string_view attribute, double fallback) {
  const double value = node.attributes().get_double(attribute, fallback);
  const ir::DType dtype = node.output(0).type.dtype;
  if (dtype == ir::DType::kBool) return boolean(value != 0);
  // Whole numbers up to 2^53, which a double represents exactly.
  if (!ir::is_floating(dtype)) return text("int64_t{", static_cast<int64_t>(std::clamp(value, -9e15, 9e15)), "}");
  return number(value);
}

void emit_full(Emitter& emitter) {
  const ir::TensorType& type = emitter.node().output(0).type;
  emitter.assign(0,
                 text("at::full(", emitter.dims(type.shape), ", ", constant_of(emitter.node(), "value", 0), ", ",
                      emitter.options(type.dtype), ")"),
                 "ATen/ops/full.h");
}

/// start, start + delta, ...: along the batch this depends on a sample's position in its micro-batch.
Inferred infer_iota(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 0, 0));
  GP_TRY(const ir::DType dtype, target_dtype(node));
  ir::Shape shape = node.attributes().get_shape("shape");
  if (shape.size() != 1) return bad_model(node, text("gives rank ", shape.size(), ", only rank 1 has an order"));
  return one_output(node, {dtype, std::move(shape)}, Mixing::kMixes);
}

void emit_iota(Emitter& emitter) {
  const ir::TensorType& type = emitter.node().output(0).type;
  emitter.assign(0,
                 text("at::arange(", emitter.dim(type.shape.front()), ", ", emitter.options(type.dtype), ").mul(",
                      constant_of(emitter.node(), "delta", 1), ").add(", constant_of(emitter.node(), "start", 0), ")"),
                 "ATen/ops/arange.h");
}

// --- entries ---

ir::Attributes axes(std::vector<int64_t> list) { return {{"axes", std::move(list)}}; }
ir::Attributes target(const ExampleShape& dims) { return {{"shape", shape_of(dims)}}; }

// NOLINTNEXTLINE(readability-function-size): a table
std::vector<OpDef> reshaping_rows() {
  return {
      {.name = "Reshape",
       .infer = infer_reshape,
       .work = no_work,
       .gradient = reshape_gradient,
       .emit = emit_reshape,
       .dependence = Dependence::kSameOrder,
       .is_view = always,
       .sample_sum = as_first_input,
       .examples = {{.inputs = {normal({kB, 6, 4})}, .attributes = target({ir::Dim::batch(6), 4})},
                    {.inputs = {normal({3, kB, 8})}, .attributes = target({3, ir::Dim::batch(2), 4})},
                    {.inputs = {normal({kB, 6, 4})}, .attributes = target({0, -1, 8})},
                    {.inputs = {weight(normal({6}))}, .attributes = target({1, 2, 3})}}},
      {.name = "Flatten",
       .infer = infer_flatten,
       .work = no_work,
       .gradient = reshape_gradient,
       .emit = emit_reshape,
       .dependence = Dependence::kSameOrder,
       .is_view = always,
       .sample_sum = as_first_input,
       .examples = {{.inputs = {normal({kB, 3, 4})}, .attributes = {{"axis", int64_t{1}}}},
                    {.inputs = {normal({kB, 3, 4})}, .attributes = {{"axis", int64_t{-1}}}}}},
      {.name = "Squeeze",
       .infer = infer_squeeze,
       .work = no_work,
       .gradient = reshape_gradient,
       .emit = emit_reshape,
       .dependence = Dependence::kSameOrder,
       .is_view = always,
       .sample_sum = as_first_input,
       .examples = {{.inputs = {normal({kB, 1, 4, 1})}, .attributes = axes({1, 3})},
                    {.inputs = {normal({1, kB, 4})}, .attributes = axes({0})}}},
      {.name = "Unsqueeze",
       .infer = infer_unsqueeze,
       .work = no_work,
       .gradient = reshape_gradient,
       .emit = emit_reshape,
       .dependence = Dependence::kSameOrder,
       .is_view = always,
       .sample_sum = as_first_input,
       .examples = {{.inputs = {normal({kB, 4})}, .attributes = axes({0, 3})},
                    {.inputs = {normal({kB})}, .attributes = axes({1})}}},
      {.name = "OneSample",
       .infer = infer_one_sample,
       .work = no_work,
       .gradient = one_sample_gradient,
       .emit = emit_reshape,
       .is_view = always,
       .mixes_samples = always,
       .examples = {{.inputs = {normal({kB, 4})}, .attributes = target({4, kB})},
                    {.inputs = {normal({kB, 2, 3})}, .attributes = target({ir::Dim::batch(6)})}}},
      {.name = "Transpose",
       .infer = infer_transpose,
       .work = no_work,
       .gradient = transpose_gradient,
       .emit = emit_transpose,
       .is_view = always,
       .axes_order = [](const NodeView& node) { return permutation(node).value(); },
       .keeps_elements = always,
       .examples = {{.inputs = {normal({kB, 2, 3})}, .attributes = {{"perm", std::vector<int64_t>{1, 2, 0}}}},
                    {.inputs = {normal({kB, 2, 3})}}}},
      {.name = "Expand",
       .infer = infer_expand,
       .work = no_work,
       .gradient = pass_first_gradient,
       .emit = emit_expand,
       .dependence = Dependence::kRepeated,
       .is_view = always,
       .examples = {{.inputs = {normal({kB, 1, 3})}, .attributes = target({2, 1, 4, 1})},
                    {.inputs = {weight(normal({1, 3}))}, .attributes = target({kB, 1, 3})}}},
  };
}

// Narrower integers would wrap, floats round, and booleans only have two values.
bool keeps_integers(const NodeView& node) {
  const ir::DType to = node.output(0).type.dtype;
  return to == ir::DType::kInt64 || to == ir::DType::kInt32;
}

// NOLINTNEXTLINE(readability-function-size): a table
std::vector<OpDef> other_rows() {
  return {
      {.name = "Identity",
       .infer = infer_identity,
       .work = no_work,
       .gradient = pass_first_gradient,
       .emit = emit_identity,
       .dependence = Dependence::kElement,
       .is_view = always,
       .sample_sum = as_first_input,
       .keeps_elements = always,
       .examples = {{.inputs = {normal({kB, 3})}}, {.inputs = {booleans({kB, 3})}}}},
      {.name = "Cast",
       .infer = infer_cast,
       .work = copy_work,
       .gradient = cast_gradient,
       .emit = emit_cast,
       .dependence = Dependence::kElement,
       .sample_sum = as_first_input,
       .keeps_elements = keeps_integers,
       .examples = {{.inputs = {normal({kB, 3})}, .attributes = {{"to", std::string("f32")}}},
                    {.inputs = {integers({kB, 3}, -4, 5)}, .attributes = {{"to", std::string("f32")}}},
                    {.inputs = {distinct({kB, 30})}, .attributes = {{"to", std::string("i64")}}},
                    {.inputs = {integers({kB, 3}, -1, 2)}, .attributes = {{"to", std::string("bool")}}}}},
      {.name = "BitCast",
       .precision = Precision::kFloat32,
       .infer = infer_bit_cast,
       .work = no_work,
       .emit = emit_bit_cast,
       .dependence = Dependence::kElement,
       .is_view = always,
       // Bit patterns of float16 from 1 on.
       .examples = {{.inputs = {integers({kB, 3}, 0x3c00, 0x4400, ir::DType::kInt16)},
                     .attributes = {{"to", std::string("f16")}}},
                    {.inputs = {booleans({kB, 3})}, .attributes = {{"to", std::string("u8")}}}}},
      {.name = "Full",
       .infer = infer_full,
       .work = copy_work,
       .emit = emit_full,
       .owns_outputs = always,
       .examples = {{.attributes = {{"shape", shape_of({kB, 3})}, {"value", 0.1}, {"to", std::string("f32")}}},
                    {.attributes = {{"shape", ir::Shape{}}, {"value", -7.0}, {"to", std::string("i64")}}},
                    {.attributes = {{"shape", shape_of({2})}, {"value", 1.0}, {"to", std::string("bool")}}}}},
      {.name = "Iota",
       .infer = infer_iota,
       .work = copy_work,
       .emit = emit_iota,
       .examples =
           {{.attributes = {{"shape", shape_of({5})}, {"start", 3.0}, {"delta", -2.0}, {"to", std::string("i64")}}},
            {.attributes = {{"shape", shape_of({kB})}, {"to", std::string("f32")}}}}},
  };
}

}  // namespace

std::span<const OpDef> shape_ops() {
  static const std::vector<OpDef> rows = [] {
    std::vector<OpDef> all = reshaping_rows();
    for (const OpDef& row : other_rows()) all.push_back(row);
    return all;
  }();
  return rows;
}

}  // namespace graphpipe::ops
