// LRN: x / base^beta, base = bias + alpha / size * (sum of squares over a window of channels). The window of channel c
// is [c - (size-1)/2, c + size/2], clipped at the ends. The gradient recomputes the base from x.

#include "ops/emit_helpers.h"
#include "ops/example_helpers.h"
#include "ops/families.h"
#include "ops/gradient_helpers.h"
#include "ops/infer_helpers.h"

namespace graphpipe::ops {
namespace {

struct LrnWindow {
  int64_t size = 1;
  int64_t before = 0, after = 0;
};

LrnWindow lrn_window_of(const NodeView& node) {
  const int64_t size = node.attributes().get_int("size", 1);
  return {.size = size, .before = (size - 1) / 2, .after = size / 2};
}

Inferred infer_lrn_of(const NodeView& node, size_t x) {
  const ir::Shape& shape = node.input(x).type.shape;
  if (shape.size() < 2) return bad_model(node, text("needs [N, C, ...], found ", shape_text(shape)));
  const int64_t size = node.attributes().get_int("size", 0);
  if (size < 1 || size > (int64_t{1} << 20)) return bad_model(node, text("has a window of ", size, " channels"));
  if (!shape[1].is_fixed()) {
    return problem_at(node, Code::kBatchNotFound, text("has the batch as its channels, in ", shape_text(shape)),
                      "put the samples on axis 0");
  }
  return one_output(node, node.input(x).type);
}

Inferred infer_lrn(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  GP_TRY_VOID(expect_floating(node, {0}));
  return infer_lrn_of(node, 0);
}

Inferred infer_lrn_gradient(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 2, 2));
  return infer_lrn_of(node, 1);
}

Work lrn_work(const NodeView& node, Samples samples) { return per_output_element(node, samples, 30); }
Work lrn_gradient_work(const NodeView& node, Samples samples) { return per_output_element(node, samples, 60); }

// The mean over the window of a [N, C, ...] expression, in the shape of `like`. Clipped windows are also divided by the
// full size.
std::string window_mean(const std::string& expression, const std::string& like, int64_t size, int64_t before,
                        int64_t after) {
  return text("at::avg_pool2d(at::constant_pad_nd(", expression, ".flatten(2).unsqueeze(1), {0, 0, ", before, ", ",
              after, "}), {", size, ", 1}, {1, 1}).view_as(", like, ")");
}

// [N, C] has no spatial axes to flatten: it gets one of size 1.
std::string with_area(const std::string& expression, size_t rank) {
  return rank == 2 ? expression + ".unsqueeze(2)" : expression;
}

std::string base_text(const Emitter& emitter, size_t x) {
  const ir::Attributes& attributes = emitter.node().attributes();
  const LrnWindow window = lrn_window_of(emitter.node());
  const size_t rank = emitter.node().input(x).type.shape.size();
  const std::string mean = window_mean(with_area(text("at::square(", emitter.in(x), ")"), rank), emitter.in(x),
                                       window.size, window.before, window.after);
  return text(mean, ".mul_(", number(attributes.get_double("alpha", 1e-4)), ").add_(",
              number(attributes.get_double("bias", 1)), ")");
}

void include_window_mean(Emitter& emitter) {
  emitter.include("ATen/ops/avg_pool2d.h");
  emitter.include("ATen/ops/constant_pad_nd.h");
  emitter.include("ATen/ops/square.h");
}

void emit_lrn(Emitter& emitter) {
  include_window_mean(emitter);
  const double beta = emitter.node().attributes().get_double("beta", 0.75);
  emitter.assign(0, text(base_text(emitter, 0), ".pow_(", number(-beta), ").mul_(", emitter.in(0), ")"), kTensorHeader);
}

// g base^-beta - 2 alpha beta x * mean over the windows that contain the channel of (g x base^(-beta-1))
void emit_lrn_gradient(Emitter& emitter) {
  include_window_mean(emitter);
  const ir::Attributes& attributes = emitter.node().attributes();
  const double beta = attributes.get_double("beta", 0.75), alpha = attributes.get_double("alpha", 1e-4);
  const LrnWindow window = lrn_window_of(emitter.node());
  const std::string base = emitter.local("base"), scaled = emitter.local("scaled"), far = emitter.local("far");
  const size_t rank = emitter.node().input(1).type.shape.size();
  emitter.statement(text("const at::Tensor ", base, " = ", base_text(emitter, 1)), "");
  emitter.statement(
      text("const at::Tensor ", scaled, " = ", base, ".pow(", number(-beta), ").mul_(", emitter.in(0), ")"),
      "ATen/ops/mul.h");
  const std::string product = with_area(text("at::mul(", scaled, ", ", emitter.in(1), ").div_(", base, ")"), rank);
  emitter.statement(text("const at::Tensor ", far, " = ",
                         window_mean(product, emitter.in(1), window.size, window.after, window.before)),
                    "");
  emitter.assign(0, text(scaled, ".sub_(", far, ".mul_(", emitter.in(1), "), ", number(2 * alpha * beta), ")"),
                 kTensorHeader);
}

Status lrn_gradient(GradientBuilder& builder) {
  if (!builder.wants(0)) return Ok{};
  builder.set_input_gradient(
      0, builder.add_one(0, "LRNGrad", {builder.output_gradient(0), builder.input(0)}, builder.forward().attributes()));
  return Ok{};
}

ir::Attributes example_attributes(int64_t size) {
  return {{"size", size}, {"alpha", 0.3}, {"beta", 0.75}, {"bias", 1.5}};
}

}  // namespace

std::span<const OpDef> lrn_ops() {
  static const std::vector<OpDef> rows = {
      {.name = "LRN",
       .precision = Precision::kFloat32,
       .infer = infer_lrn,
       .work = lrn_work,
       .temporaries = 4,
       .gradient = lrn_gradient,
       .emit = emit_lrn,
       .examples = {{.inputs = {normal({kB, 5, 2, 2})}, .attributes = example_attributes(3)},
                    {.inputs = {normal({kB, 5, 2})}, .attributes = example_attributes(4)}}},
      {.name = "LRNGrad",
       .infer = infer_lrn_gradient,
       .work = lrn_gradient_work,
       .temporaries = 4.5,
       .emit = emit_lrn_gradient,
       .examples = {{.inputs = {normal({kB, 5, 2, 2}), normal({kB, 5, 2, 2})}, .attributes = example_attributes(4)}}}};
  return rows;
}

}  // namespace graphpipe::ops
