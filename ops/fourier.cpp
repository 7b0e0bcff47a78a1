// Fourier transforms of one axis, and the overlapping frames of a signal that a short-time transform takes.
//
// The last axis of a transformed tensor holds the real and the imaginary part, or the real part alone. Transforms are
// linear: the gradient is the adjoint, a transform in the other direction (runtime/kernels/fourier.h).

#include <algorithm>
#include <cmath>

#include "ops/emit_helpers.h"
#include "ops/example_helpers.h"
#include "ops/families.h"
#include "ops/gradient_helpers.h"
#include "ops/infer_helpers.h"
#include "ops/joined_rows.h"

namespace graphpipe::ops {
namespace {

constexpr std::string_view kFourierHeader = "runtime/kernels/fourier.h";
/// A transform of this length needs 128 MiB per row.
constexpr int64_t kMaxTransform = int64_t{1} << 24;

// --- DFT{axis, dft_length, inverse, onesided} ---

/// The attributes, checked against the shape of x.
struct Transform {
  int axis = 0;
  int64_t length = 0, parts = 1;
  bool inverse = false, onesided = false;
};

Diagnostic transforms_batch(const NodeView& node, std::string_view what) {
  return problem_at(node, Code::kMixesSamples, text(what, " the batch axis, which mixes the samples"),
                    "take another axis, or check that the axis named as the batch is the right one");
}

Result<Transform> transform_of(const NodeView& node, const ir::Shape& x) {
  const ir::Attributes& attributes = node.attributes();
  Transform form{.inverse = attributes.get_int("inverse", 0) != 0, .onesided = attributes.get_int("onesided", 0) != 0};
  const bool has_parts = x.size() >= 2 && (x.back() == ir::Dim::fixed(1) || x.back() == ir::Dim::fixed(2));
  if (!has_parts) return bad_model(node, text("needs a last axis of 1 or 2, found ", shape_text(x)));
  GP_TRY(form.axis, axis_attribute(node, "axis", 1, x.size()));
  if (form.axis + 1 == static_cast<int>(x.size())) return bad_model(node, "transforms the axis of the complex parts");
  const ir::Dim size = x[static_cast<size_t>(form.axis)];
  if (!size.is_fixed()) return transforms_batch(node, "transforms");
  form.parts = x.back().factor;
  form.length = attributes.get_int("dft_length", 0);
  if (form.length < 1 || size.factor < 1 || form.length > kMaxTransform)
    return bad_model(node, text("transforms ", size.factor, " elements at a length of ", form.length));
  if (form.onesided && form.parts != (form.inverse ? 2 : 1))
    return bad_model(node, form.inverse ? "makes a real signal of a spectrum without imaginary parts"
                                        : "asks for half the spectrum of a complex signal");
  return form;
}

Inferred infer_dft(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  ir::TensorType type = node.input(0).type;
  if (type.dtype != ir::DType::kFloat32 && type.dtype != ir::DType::kFloat64)
    return problem_at(node, Code::kUnsupportedType, text("transforms ", ir::dtype_name(type.dtype)),
                      "cast its input to float32");
  GP_TRY(const Transform form, transform_of(node, type.shape));
  const bool halves = form.onesided && !form.inverse;
  type.shape[static_cast<size_t>(form.axis)] = ir::Dim::fixed(halves ? form.length / 2 + 1 : form.length);
  type.shape.back() = ir::Dim::fixed(form.onesided && form.inverse ? 1 : 2);
  return one_output(node, std::move(type));
}

// 5 n log2 n for each row of n complex numbers (Cooley and Tukey, 1965); real ones take half.
Work dft_work(const NodeView& node, Samples samples) {
  const double length = static_cast<double>(std::max<int64_t>(node.attributes().get_int("dft_length", 1), 2));
  const double numbers = std::max(elements(node.output(0), samples), elements(node.input(0), samples)) / 2;
  const double bytes = bytes_touched(node, samples);
  return {.flops = 5 * numbers * std::log2(length), .bytes = 2 * bytes, .scratch = 2 * bytes};
}

std::string form_text(const Transform& form) {
  return text("{", form.axis, ", ", form.length, ", ", boolean(form.inverse), ", ", boolean(form.onesided), "}");
}

void emit_dft(Emitter& emitter) {
  const Transform form = transform_of(emitter.node(), emitter.node().input(0).type.shape).value();
  emitter.assign(0, text("graphpipe::runtime::dft(", emitter.in(0), ", ", form_text(form), ")"), kFourierHeader);
}

ir::Attributes with_input_shape(const GradientBuilder& builder) {
  ir::Attributes attributes = builder.forward().attributes();
  attributes.set("shape", builder.forward().input(0).type.shape);
  return attributes;
}

Status dft_gradient(GradientBuilder& builder) {
  if (!builder.wants(0)) return Ok{};
  builder.set_input_gradient(0, builder.add_one(0, "DFTGrad", {builder.output_gradient(0)}, with_input_shape(builder)));
  return Ok{};
}

/// Attributes: those of the forward node, and `shape`, that of its input.
Inferred infer_dft_gradient(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  const ir::Shape shape = node.attributes().get_shape("shape");
  GP_TRY_VOID(transform_of(node, shape));
  return one_output(node, {node.input(0).type.dtype, shape});
}

void emit_dft_gradient(Emitter& emitter) {
  const ir::Shape shape = emitter.node().attributes().get_shape("shape");
  const Transform form = transform_of(emitter.node(), shape).value();
  emitter.assign(0,
                 text("graphpipe::runtime::dft_gradient(", emitter.in(0), ", ", form_text(form), ", ",
                      shape[static_cast<size_t>(form.axis)].factor, ", ", form.parts, ")"),
                 kFourierHeader);
}

// --- Frames{axis, length, step}: [.., T, ..] to [.., frames, length, ..] ---

struct Framing {
  int axis = 0;
  int64_t length = 0, step = 0, count = 0;
};

Result<Framing> framing_of(const NodeView& node, const ir::Shape& x) {
  Framing form{.length = node.attributes().get_int("length", 0), .step = node.attributes().get_int("step", 0)};
  GP_TRY(form.axis, axis_attribute(node, "axis", 0, x.size()));
  const ir::Dim size = x[static_cast<size_t>(form.axis)];
  if (!size.is_fixed()) return transforms_batch(node, "cuts frames out of");
  if (form.length < 1 || form.step < 1 || form.length > size.factor)
    return bad_model(
        node, text("cuts frames of ", form.length, " elements, one every ", form.step, ", out of ", size.factor));
  form.count = (size.factor - form.length) / form.step + 1;
  return form;
}

Inferred infer_frames(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  ir::TensorType type = node.input(0).type;
  GP_TRY(const Framing form, framing_of(node, type.shape));
  type.shape[static_cast<size_t>(form.axis)] = ir::Dim::fixed(form.length);
  type.shape.insert(type.shape.begin() + form.axis, ir::Dim::fixed(form.count));
  return one_output(node, std::move(type));
}

void emit_frames(Emitter& emitter) {
  const Framing form = framing_of(emitter.node(), emitter.node().input(0).type.shape).value();
  emitter.assign(0,
                 text(emitter.in(0), ".unfold(", form.axis, ", ", form.length, ", ", form.step, ").movedim(-1, ",
                      form.axis + 1, ")"),
                 "ATen/core/Tensor.h");
}

Status frames_gradient(GradientBuilder& builder) {
  if (!builder.wants(0)) return Ok{};
  builder.set_input_gradient(0,
                             builder.add_one(0, "FramesGrad", {builder.output_gradient(0)}, with_input_shape(builder)));
  return Ok{};
}

/// The adjoint of Frames: sums the contributions of all frames to an element. `shape`: that of the forward node's
/// input.
Inferred infer_frames_gradient(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  const ir::Shape shape = node.attributes().get_shape("shape");
  GP_TRY_VOID(framing_of(node, shape));
  return one_output(node, {node.input(0).type.dtype, shape});
}

void emit_frames_gradient(Emitter& emitter) {
  const ir::Shape& shape = emitter.node().output(0).type.shape;
  const Framing form = framing_of(emitter.node(), shape).value();
  emitter.assign(0,
                 text("at::unfold_backward(", emitter.in(0), ".movedim(", form.axis + 1, ", -1), ", emitter.dims(shape),
                      ", ", form.axis, ", ", form.length, ", ", form.step, ")"),
                 "ATen/ops/unfold_backward.h");
}

Status frames_gradient_gradient(GradientBuilder& builder) {
  if (!builder.wants(0)) return Ok{};
  builder.set_input_gradient(
      0, builder.add_one(0, "Frames", {builder.output_gradient(0)}, builder.forward().attributes()));
  return Ok{};
}

// --- entries ---

Example transformed(const ExampleShape& x, int64_t axis, int64_t length, bool inverse, bool onesided) {
  return {.inputs = {normal(x)},
          .attributes = {
              {"axis", axis}, {"dft_length", length}, {"inverse", int64_t{inverse}}, {"onesided", int64_t{onesided}}}};
}

Example with_shape_of(Example example, const ExampleShape& x) {
  example.attributes.set("shape", shape_of(x));
  return example;
}

std::vector<OpDef> dft_rows() {
  return {{.name = "DFT",
           .precision = Precision::kFloat32,
           .infer = infer_dft,
           .work = dft_work,
           .gradient = dft_gradient,
           .emit = emit_dft,
           .examples = {transformed({kB, 6, 1}, 1, 6, false, false), transformed({kB, 5, 2}, 1, 7, false, false),
                        transformed({kB, 2, 5, 2}, 2, 4, true, false), transformed({kB, 5, 1}, 1, 5, true, false),
                        transformed({5, kB, 1}, 0, 8, false, true), transformed({kB, 6, 2, 1}, 1, 5, false, true),
                        transformed({kB, 4, 2}, 1, 6, true, true), transformed({kB, 3, 2, 2}, 1, 7, true, true),
                        transformed({kB, 5, 2}, 1, 5, true, true)}},
          {.name = "DFTGrad",
           .precision = Precision::kFloat32,
           .infer = infer_dft_gradient,
           .work = dft_work,
           .emit = emit_dft_gradient,
           .examples = {with_shape_of(transformed({kB, 4, 2}, 1, 6, false, true), {kB, 5, 1}),
                        with_shape_of(transformed({kB, 6, 1}, 1, 6, true, true), {kB, 4, 2})}}};
}

std::vector<OpDef> frames_rows() {
  const ir::Attributes attributes = {{"axis", int64_t{1}}, {"length", int64_t{4}}, {"step", int64_t{3}}};
  return {{.name = "Frames",
           .infer = infer_frames,
           .work = no_work,
           .gradient = frames_gradient,
           .emit = emit_frames,
           .is_view = always,
           .examples = {{.inputs = {normal({kB, 12, 2})}, .attributes = attributes}}},
          {.name = "FramesGrad",
           .infer = infer_frames_gradient,
           .work = copy_work,
           .gradient = frames_gradient_gradient,
           .emit = emit_frames_gradient,
           .examples = {with_shape_of({.inputs = {normal({kB, 3, 4})}, .attributes = attributes}, {kB, 12})}}};
}

}  // namespace

std::span<const OpDef> fourier_ops() {
  static const std::vector<OpDef> rows = joined({dft_rows(), frames_rows()});
  return rows;
}

}  // namespace graphpipe::ops
