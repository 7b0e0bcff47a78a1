// Ops that draw random numbers, each number a function of (seed, step, forward node, sample, position): see
// runtime/random.h. Dropout saves no mask: its gradient draws it again.
//
// ONNX's own seed attributes are ignored: the seed is an option of the run.

#include "ops/emit_helpers.h"
#include "ops/example_helpers.h"
#include "ops/families.h"
#include "ops/gradient_helpers.h"
#include "ops/infer_helpers.h"
#include "ops/joined_rows.h"

namespace graphpipe::ops {
namespace {

constexpr std::string_view kRandom = "runtime/random.h";

// --- where the samples lie ---

/// runtime::SampleLayout of a value.
struct Layout {
  int64_t batch_axis = -1, rows_per_sample = 0;
};

Layout layout_of(const ir::Value& value) {
  if (value.batch == ir::BatchKind::kNone) return {};
  if (value.batch == ir::BatchKind::kMixed) return {.rows_per_sample = 1};
  return {value.batch_axis, value.type.shape[static_cast<size_t>(value.batch_axis)].factor};
}

std::string layout_text(const Layout& layout) {
  return text("{", layout.batch_axis, ", ", layout.rows_per_sample, "}");
}

// --- Dropout(x) {ratio, training_mode}: on unless training_mode is 0. The frontend leaves out what is off. ---

bool is_on(const NodeView& node) {
  return node.attributes().get_int("training_mode", 1) != 0 && node.attributes().get_double("ratio", 0.5) > 0;
}

std::optional<ir::Attributes> dropout_in_evaluation(const NodeView& node) {
  if (!is_on(node)) return std::nullopt;
  ir::Attributes attributes = node.attributes();
  attributes.set("training_mode", int64_t{0});
  return attributes;
}

std::string ratio_text(const NodeView& node) { return number(node.attributes().get_double("ratio", 0.5)); }

Inferred infer_dropout(const NodeView& node) {
  const double ratio = node.attributes().get_double("ratio", 0.5);
  if (!(ratio >= 0 && ratio <= 1)) return bad_model(node, text("has the ratio ", ratio, ", which is no probability"));
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  return same_as_first_float_input(node);
}

// Ten rounds of two products, shared by four elements, plus the selection.
Work draw_work(const NodeView& node, Samples samples) { return per_output_element(node, samples, 20); }
Work dropout_work(const NodeView& node, Samples samples) { return is_on(node) ? draw_work(node, samples) : Work{}; }

void emit_dropout(Emitter& emitter) {
  if (!is_on(emitter.node())) return emitter.assign(0, emitter.in(0), "");
  emitter.include(kRandom);
  emitter.assign(
      0,
      text("graphpipe::runtime::dropout_mask(", emitter.in(0), ", ", layout_text(layout_of(emitter.node().input(0))),
           ", ", ratio_text(emitter.node()), ", ", emitter.random_key(), ").mul_(", emitter.in(0), ")"),
      kRandom);
}

Status dropout_gradient(GradientBuilder& builder) {
  if (!builder.wants(0)) return Ok{};
  const NodeView& forward = builder.forward();
  if (!is_on(forward)) {
    builder.set_input_gradient(0, builder.output_gradient(0));
    return Ok{};
  }
  // The gradient may have lost the batch axis by which the mask was drawn, so the node records it.
  const Layout layout = layout_of(forward.input(0));
  const ir::Attributes attributes = {{"ratio", forward.attributes().get_double("ratio", 0.5)},
                                     {"batch_axis", layout.batch_axis},
                                     {"rows_per_sample", layout.rows_per_sample}};
  builder.set_input_gradient(0, builder.add_one(0, "DropoutGrad", {builder.output_gradient(0)}, attributes));
  return Ok{};
}

void emit_dropout_gradient(Emitter& emitter) {
  const ir::Attributes& attributes = emitter.node().attributes();
  const Layout layout{attributes.get_int("batch_axis", -1), attributes.get_int("rows_per_sample", 0)};
  emitter.include(kRandom);
  emitter.assign(0,
                 text("graphpipe::runtime::dropout_mask(", emitter.in(0), ", ", layout_text(layout), ", ",
                      ratio_text(emitter.node()), ", ", emitter.random_key(), ").mul_(", emitter.in(0), ")"),
                 kRandom);
}

// --- RandomUniformLike, RandomNormalLike {to}, Bernoulli(probability) {to} ---

Inferred infer_like(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  ir::TensorType type = node.input(0).type;
  const std::string name = node.attributes().get_string("to", "");
  if (!name.empty()) {
    const std::optional<ir::DType> dtype = ir::dtype_of_name(name);
    if (!dtype) return bad_model(node, "asks for an unknown element type");
    type.dtype = *dtype;
  }
  return one_output(node, std::move(type));
}

Inferred infer_float_like(const NodeView& node) {
  GP_TRY(const std::vector<ir::Value> outputs, infer_like(node));
  if (ir::is_floating(outputs.front().type.dtype)) return outputs;
  return problem_at(node, Code::kUnsupportedType, "draws numbers of a type that is not floating",
                    "ask for a floating type");
}

// function(like, layout, low-or-mean, high-or-deviation, key). The numbers are drawn in the output's type.
std::string draw_text(Emitter& emitter, std::string_view function, double first, double second, ir::DType dtype) {
  const ir::Value& like = emitter.node().input(0);
  const std::string cast = like.type.dtype == dtype ? "" : text(".to(", scalar_type(dtype), ")");
  return text("graphpipe::runtime::", function, "(", emitter.in(0), cast, ", ", layout_text(layout_of(like)), ", ",
              number(first), ", ", number(second), ", ", emitter.random_key(), ")");
}

void emit_uniform(Emitter& emitter) {
  const ir::Attributes& attributes = emitter.node().attributes();
  emitter.assign(0,
                 draw_text(emitter, "random_uniform", attributes.get_double("low", 0), attributes.get_double("high", 1),
                           emitter.node().output(0).type.dtype),
                 kRandom);
}

void emit_normal(Emitter& emitter) {
  const ir::Attributes& attributes = emitter.node().attributes();
  emitter.assign(0,
                 draw_text(emitter, "random_normal", attributes.get_double("mean", 0),
                           attributes.get_double("scale", 1), emitter.node().output(0).type.dtype),
                 kRandom);
}

void emit_bernoulli(Emitter& emitter) {
  // A uniform 16-bit number may round up to 1, so a probability of 1 would not always succeed.
  const ir::DType given = emitter.node().input(0).type.dtype;
  const ir::DType dtype = given == ir::DType::kFloat64 ? given : ir::DType::kFloat32;
  emitter.include(kRandom);
  emitter.assign(0,
                 text("at::lt(", draw_text(emitter, "random_uniform", 0, 1, dtype), ", ", emitter.in(0), ").to(",
                      scalar_type(emitter.node().output(0).type.dtype), ")"),
                 "ATen/ops/lt.h");
}

// --- entries ---

std::vector<OpDef> dropout_rows() {
  return {
      {.name = "Dropout",
       .infer = infer_dropout,
       .work = dropout_work,
       .gradient = dropout_gradient,
       .emit = emit_dropout,
       .in_evaluation = dropout_in_evaluation,
       .is_random = true,
       .examples = {{.inputs = {normal({kB, 3, 4})}, .attributes = {{"ratio", 0.25}}},
                    {.inputs = {normal({3, kB})}, .attributes = {{"ratio", 0.5}}},
                    {.inputs = {normal({kB, 3})}}}},
      {.name = "DropoutGrad",
       .infer = infer_dropout,
       .work = draw_work,
       .emit = emit_dropout_gradient,
       .is_random = true,
       .examples = {{.inputs = {normal({kB, 3})},
                     .attributes = {{"ratio", 0.25}, {"batch_axis", int64_t{0}}, {"rows_per_sample", int64_t{1}}}}}}};
}

std::vector<OpDef> draw_rows() {
  return {{.name = "RandomUniformLike",
           .infer = infer_float_like,
           .work = draw_work,
           .emit = emit_uniform,
           .is_random = true,
           .examples = {{.inputs = {normal({kB, 3})}, .attributes = {{"low", -1.0}, {"high", 3.0}}}}},
          {.name = "RandomNormalLike",
           .infer = infer_float_like,
           .work = draw_work,
           .emit = emit_normal,
           .is_random = true,
           .examples = {{.inputs = {normal({kB, 3})}, .attributes = {{"to", std::string("f64")}}}}},
          {.name = "Bernoulli",
           .infer = infer_like,
           .work = draw_work,
           .emit = emit_bernoulli,
           .is_random = true,
           .examples = {{.inputs = {uniform01({kB, 3})}, .attributes = {{"to", std::string("bool")}}}}}};
}

}  // namespace

std::span<const OpDef> random_ops() {
  static const std::vector<OpDef> rows = joined({dropout_rows(), draw_rows()});
  return rows;
}

}  // namespace graphpipe::ops
