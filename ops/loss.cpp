// Losses that return the sum over the counted positions of the micro-batch, as training needs them (docs/semantics.md,
// section 4): the graph multiplies the sum by 1/N of the full batch. Cross entropy is in cross_entropy.cpp, ONNX's own
// losses are in onnx_loss.cpp.

#include "ops/emit_helpers.h"
#include "ops/example_helpers.h"
#include "ops/families.h"
#include "ops/gradient_helpers.h"
#include "ops/infer_helpers.h"
#include "ops/joined_rows.h"
#include "ops/sample_sum.h"

namespace graphpipe::ops {
namespace {

// The gradient of input i is `op` of the loss's gradient and the forward's inputs.
void add_loss_gradient(GradientBuilder& builder, size_t i, std::string_view op) {
  if (!builder.wants(i)) return;
  std::vector<ir::ValueId> inputs = {builder.output_gradient(0)};
  for (size_t k = 0; k < builder.forward().input_count(); ++k) inputs.push_back(builder.input(k));
  builder.set_input_gradient(i, builder.add_one(i, op, std::move(inputs), builder.forward().attributes()));
}

Inferred scalar_sum(const NodeView& node) { return one_output(node, {node.input(0).type.dtype, {}}, Mixing::kMixes); }

// --- MeanSquaredErrorSum(x, y), BceWithLogitsSum(x, y): sums over all elements ---

Inferred infer_elementwise_loss(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 2, 2));
  GP_TRY_VOID(expect_floating(node, {0, 1}));
  GP_TRY_VOID(expect_same_dtype(node, {0, 1}));
  if (node.input(0).type.shape != node.input(1).type.shape) {
    return problem_at(node, Code::kBadLoss,
                      text("needs two equal shapes, found ", shape_text(node.input(0).type.shape), " and ",
                           shape_text(node.input(1).type.shape)),
                      "give a label of the output's shape");
  }
  return scalar_sum(node);
}

Inferred infer_elementwise_loss_gradient(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 3, 3));
  return one_output(node, node.input(1).type);
}

/// Includes the differences that are summed.
Work squared_error_work(const NodeView& node, Samples samples) {
  Work work = per_input_element(node, samples, 3);
  work.scratch = bytes_of(node.input(0), samples);
  return work;
}
/// Includes the temporaries of LibTorch's kernel: 1 - labels, the logarithms, and what it keeps of their inputs.
Work bce_work(const NodeView& node, Samples samples) {
  Work work = per_input_element(node, samples, 24);
  work.scratch = 3 * bytes_of(node.input(0), samples);
  return work;
}
Work three_flops(const NodeView& node, Samples samples) { return per_output_element(node, samples, 3); }
Work sigmoid_flops(const NodeView& node, Samples samples) { return function_of_output(node, samples, 13); }

Status squared_error_gradient(GradientBuilder& builder) {
  add_loss_gradient(builder, 0, "MeanSquaredErrorSumGrad");
  if (!builder.wants(1)) return Ok{};
  const std::vector<ir::ValueId> swapped = {builder.output_gradient(0), builder.input(1), builder.input(0)};
  builder.set_input_gradient(1, builder.add_one(1, "MeanSquaredErrorSumGrad", swapped));
  return Ok{};
}

Status bce_gradient(GradientBuilder& builder) {
  add_loss_gradient(builder, 0, "BceWithLogitsSumGrad");
  add_loss_gradient(builder, 1, "BceWithLogitsSumGradLabel");
  return Ok{};
}

void emit_bce(Emitter& emitter) {
  assign_pattern(emitter, "at::binary_cross_entropy_with_logits($0, $1, {}, {}, at::Reduction::Sum)",
                 "ATen/ops/binary_cross_entropy_with_logits.h");
}

std::vector<Example> elementwise_gradient_examples() {
  return {{.inputs = {normal({}), normal({kB, 3}), uniform01({kB, 3})}}};
}

// --- ContrastiveLossSum(similarity [B, B]): samples times the symmetric mean cross entropy, diagonal targets ---

Status expect_similarity(const NodeView& node, size_t i) {
  const ir::Shape& shape = node.input(i).type.shape;
  if (shape == ir::Shape{ir::Dim::batch(), ir::Dim::batch()}) return Ok{};
  return problem_at(node, Code::kBadLoss, text("needs a similarity of shape [B, B], found ", shape_text(shape)),
                    "name the output that compares every sample with every sample");
}

Inferred infer_contrastive(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  GP_TRY_VOID(expect_floating(node, {0}));
  GP_TRY_VOID(expect_similarity(node, 0));
  return scalar_sum(node);
}

Inferred infer_contrastive_gradient(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 2, 2));
  GP_TRY_VOID(expect_similarity(node, 1));
  return one_output(node, node.input(1).type, Mixing::kMixes);
}

/// The softmax over a single sample is 1, whatever its similarity.
int64_t two_samples(const NodeView&) { return 2; }

Work contrastive_work(const NodeView& node, Samples samples) { return per_input_element(node, samples, 28); }
Work contrastive_gradient_work(const NodeView& node, Samples samples) { return per_output_element(node, samples, 30); }

Status contrastive_gradient(GradientBuilder& builder) {
  add_loss_gradient(builder, 0, "ContrastiveLossSumGrad");
  return Ok{};
}

void emit_contrastive(Emitter& emitter) {
  assign_pattern(emitter,
                 "at::add(at::_log_softmax($0, 0, false).diagonal(), at::_log_softmax($0, 1, false).diagonal())"
                 ".sum().mul(-0.5)",
                 "ATen/ops/_log_softmax.h");
  emitter.include("ATen/ops/add.h");
}

void emit_contrastive_gradient(Emitter& emitter) {
  const std::string result = emitter.local("gradient");
  emitter.statement(text("at::Tensor ", result, " = at::_softmax(", emitter.in(1), ", 0, false).add_(at::_softmax(",
                         emitter.in(1), ", 1, false)).mul_(0.5)"),
                    "ATen/ops/_softmax.h");
  emitter.statement(text(result, ".diagonal().sub_(1.0)"), "");
  emitter.assign(0, text(result, ".mul_(", emitter.in(0), ")"), "");
}

// --- ScaleBySamples(x): x times the samples of the micro-batch ---

void emit_scale_by_samples(Emitter& emitter) {
  emitter.assign(0, text("at::mul(", emitter.in(0), ", ", emitter.dim(ir::Dim::batch()), ")"), kMulHeader);
}

/// What does not depend on the samples is its own mean.
SampleSum scaled_by_samples(const NodeView& node, std::span<const SampleSum> inputs) {
  const bool is_mean = inputs[0] == SampleSum::kMean || node.input(0).batch == ir::BatchKind::kNone;
  return is_mean ? SampleSum::kSum : SampleSum::kNone;
}

// Whatever the input, the result depends on the number of samples.
Inferred infer_scale_by_samples(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  GP_TRY_VOID(expect_floating(node, {0}));
  return checked(node, {ir::Value{.type = node.input(0).type, .batch = ir::BatchKind::kMixed}});
}

Status scale_by_samples_gradient(GradientBuilder& builder) {
  if (!builder.wants(0)) return Ok{};
  builder.set_input_gradient(0, builder.add_one(0, "ScaleBySamples", {builder.output_gradient(0)}));
  return Ok{};
}

// --- ScaleLossTerm(sum, scales [n]): the sum times the scale of its term ---

Inferred infer_scale_loss_term(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 2, 2));
  GP_TRY_VOID(expect_floating(node, {0, 1}));
  const ir::Shape& scales = node.input(1).type.shape;
  const int64_t term = node.attributes().get_int("term", 0);
  if (scales.size() != 1 || !scales[0].is_fixed() || term < 0 || term >= scales[0].factor)
    return problem_at(node, Code::kBadLoss, text("term ", term, " has no scale in ", shape_text(scales)),
                      "give one scale for each term");
  return checked(node, {node.input(0)});
}

Status scale_loss_term_gradient(GradientBuilder& builder) {
  if (!builder.wants(0)) return Ok{};
  builder.set_input_gradient(0, builder.add_one(0, "ScaleLossTerm", {builder.output_gradient(0), builder.input(1)},
                                                builder.forward().attributes()));
  return Ok{};
}

void emit_scale_loss_term(Emitter& emitter) {
  emitter.assign(0,
                 text("at::mul(", emitter.in(0), ", ", emitter.in(1), ".select(0, ",
                      emitter.node().attributes().get_int("term", 0), "))"),
                 kMulHeader);
}

std::vector<OpDef> elementwise_rows() {
  return {{.name = "MeanSquaredErrorSum",
           .precision = Precision::kFloat32,
           .infer = infer_elementwise_loss,
           .work = squared_error_work,
           .gradient = squared_error_gradient,
           .emit = [](Emitter& e) { assign_pattern(e, "at::sum($0.sub($1).square_())", kSumHeader); },
           .sample_sum = sums_samples,
           .examples = {{.inputs = {normal({kB, 3}), normal({kB, 3})}}}},
          {.name = "MeanSquaredErrorSumGrad",
           .infer = infer_elementwise_loss_gradient,
           .work = three_flops,
           .emit = [](Emitter& e) { assign_pattern(e, "$1.sub($2).mul_($0.mul(2.0))", "ATen/core/Tensor.h"); },
           .examples = elementwise_gradient_examples()},
          {.name = "BceWithLogitsSum",
           .precision = Precision::kFloat32,
           .infer = infer_elementwise_loss,
           .work = bce_work,
           .gradient = bce_gradient,
           .emit = emit_bce,
           .sample_sum = sums_samples,
           .examples = {{.inputs = {normal({kB, 3}), uniform01({kB, 3})}}}},
          {.name = "BceWithLogitsSumGrad",
           .infer = infer_elementwise_loss_gradient,
           .work = sigmoid_flops,
           .emit = [](Emitter& e) { assign_pattern(e, "$1.sigmoid().sub_($2).mul_($0)", "ATen/core/Tensor.h"); },
           .examples = elementwise_gradient_examples()},
          {.name = "BceWithLogitsSumGradLabel",
           .infer = infer_elementwise_loss_gradient,
           .work = three_flops,
           .emit = [](Emitter& e) { assign_pattern(e, "at::mul($1, $0.neg())", kMulHeader); },
           .examples = elementwise_gradient_examples()}};
}

std::vector<OpDef> contrastive_rows() {
  return {{.name = "ContrastiveLossSum",
           .precision = Precision::kFloat32,
           .infer = infer_contrastive,
           .work = contrastive_work,
           .temporaries = 2.5,
           .gradient = contrastive_gradient,
           .emit = emit_contrastive,
           .fewest_samples = two_samples,
           .examples = {{.inputs = {normal({kB, kB})}}}},
          {.name = "ContrastiveLossSumGrad",
           .infer = infer_contrastive_gradient,
           .work = contrastive_gradient_work,
           .temporaries = 1.25,
           .emit = emit_contrastive_gradient,
           .examples = {{.inputs = {normal({}), normal({kB, kB})}}}},
          {.name = "ScaleBySamples",
           .precision = Precision::kFloat32,
           .infer = infer_scale_by_samples,
           .work = one_flop_per_element,
           .gradient = scale_by_samples_gradient,
           .emit = emit_scale_by_samples,
           .sample_sum = scaled_by_samples,
           .examples = {{.inputs = {normal({})}}}},
          {.name = "ScaleLossTerm",
           .precision = Precision::kFloat32,
           .infer = infer_scale_loss_term,
           .work = one_flop_per_element,
           .gradient = scale_loss_term_gradient,
           .emit = emit_scale_loss_term,
           .sample_sum = as_first_input,
           .constant_inputs = 1U << 1,
           .examples = {{.inputs = {normal({}), normal({3})}, .attributes = {{"term", int64_t{2}}}}}}};
}

}  // namespace

std::span<const OpDef> loss_ops() {
  static const std::vector<OpDef> rows = joined({elementwise_rows(), contrastive_rows()});
  return rows;
}

}  // namespace graphpipe::ops
