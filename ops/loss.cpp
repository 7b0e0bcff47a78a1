// Losses that return the sum over the counted positions of the micro-batch, as training needs them (docs/semantics.md,
// section 4): the graph multiplies the sum by 1/N of the full batch. ONNX's own losses are in onnx_loss.cpp.

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

// --- CrossEntropyLossSum(logits, labels) {axis, ignore_index}: outputs the loss and the log-probabilities ---

Result<int> class_axis(const NodeView& node, const ir::Shape& logits) {
  GP_TRY(const int axis, axis_attribute(node, "axis", 1, logits.size()));
  if (!logits[static_cast<size_t>(axis)].is_fixed()) {
    return problem_at(node, Code::kBadLoss, text("has the batch as its class axis, in ", shape_text(logits)),
                      "name an output whose classes lie on another axis than the samples");
  }
  return axis;
}

Status expect_labels(const NodeView& node, const ir::Shape& logits, const ir::Shape& labels, int axis) {
  ir::Shape wanted = logits;
  wanted.erase(wanted.begin() + axis);
  if (wanted == labels) return Ok{};
  return problem_at(node, Code::kBadLoss,
                    text("needs labels of shape ", shape_text(wanted), " for logits of shape ", shape_text(logits),
                         ", found ", shape_text(labels)),
                    "give one class index per position");
}

Inferred infer_cross_entropy(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 2, 2));
  GP_TRY_VOID(expect_floating(node, {0}));
  GP_TRY_VOID(expect_index(node, {1}));
  const ir::Shape& logits = node.input(0).type.shape;
  GP_TRY(const int axis, class_axis(node, logits));
  GP_TRY_VOID(expect_labels(node, logits, node.input(1).type.shape, axis));
  return checked(
      node, {make_value(node, {node.input(0).type.dtype, {}}, Mixing::kMixes), make_value(node, node.input(0).type)});
}

/// Includes copies of the labels, as indices and as booleans, and one number per label.
Work cross_entropy_work(const NodeView& node, Samples samples) {
  Work work = per_input_element(node, samples, 14);
  work.scratch = 25 * elements(node.input(1), samples);
  return work;
}
Work cross_entropy_gradient_work(const NodeView& node, Samples samples) {
  Work work = per_output_element(node, samples, 12);
  work.scratch = 17 * elements(node.input(2), samples);
  return work;
}

// Declares `index`, the labels with a class dim of one where ignored labels are class 0, and `ignored`.
struct LabelNames {
  std::string index, ignored;
};
LabelNames emit_labels(Emitter& emitter, size_t labels, int64_t axis) {
  const LabelNames names{emitter.local("index"), emitter.local("ignored")};
  const ir::Attributes& attributes = emitter.node().attributes();
  if (!attributes.has("ignore_index")) {
    emitter.statement(
        text("const at::Tensor ", names.index, " = ", emitter.in(labels), ".to(at::kLong).unsqueeze(", axis, ")"), "");
    return {names.index, ""};
  }
  emitter.statement(text("const at::Tensor ", names.ignored, " = ", emitter.in(labels), ".eq(",
                         integer(attributes.get_int("ignore_index", 0)), ").unsqueeze(", axis, ")"),
                    "");
  emitter.statement(text("const at::Tensor ", names.index, " = ", emitter.in(labels), ".to(at::kLong).unsqueeze(", axis,
                         ").masked_fill(", names.ignored, ", 0)"),
                    "");
  return names;
}

void emit_cross_entropy(Emitter& emitter) {
  const int64_t axis = emitter.node().attributes().get_int("axis", 1);
  const LabelNames labels = emit_labels(emitter, 1, axis);
  const std::string log_probabilities = emitter.local("log_probabilities");
  emitter.statement(
      text("at::Tensor ", log_probabilities, " = at::_log_softmax(", emitter.in(0), ", ", axis, ", false)"),
      "ATen/ops/_log_softmax.h");
  const std::string masked = labels.ignored.empty() ? "" : text(".masked_fill(", labels.ignored, ", 0.0)");
  emitter.assign(0, text(log_probabilities, ".gather(", axis, ", ", labels.index, ")", masked, ".sum().neg()"), "");
  emitter.assign(1, text("std::move(", log_probabilities, ")"), "");
}

Status cross_entropy_gradient(GradientBuilder& builder) {
  if (!builder.wants(0)) return Ok{};
  const std::vector<ir::ValueId> inputs = {builder.output_gradient(0), builder.output(1), builder.input(1)};
  builder.set_input_gradient(0, builder.add_one(0, "CrossEntropyLossSumGrad", inputs, builder.forward().attributes()));
  return Ok{};
}

Inferred infer_cross_entropy_gradient(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 3, 3));
  return one_output(node, node.input(1).type);
}

// probabilities - one_hot(labels), 0 at ignored positions, times the loss's gradient; in one buffer.
void emit_cross_entropy_gradient(Emitter& emitter) {
  const int64_t axis = emitter.node().attributes().get_int("axis", 1);
  const LabelNames labels = emit_labels(emitter, 2, axis);
  const std::string result = emitter.local("gradient");
  emitter.statement(text("at::Tensor ", result, " = ", emitter.in(1), ".exp()"), "");
  emitter.statement(text(result, ".scatter_(", axis, ", ", labels.index, ", -1.0, \"add\")"), "");
  if (!labels.ignored.empty()) emitter.statement(text(result, ".masked_fill_(", labels.ignored, ", 0.0)"), "");
  emitter.assign(0, text(result, ".mul_(", emitter.in(0), ")"), "");
}

wire::IdBounds cross_entropy_ids(const NodeView& node, size_t i) {
  if (i != 1) return {};
  const ir::Shape& logits = node.input(0).type.shape;
  int64_t axis = node.attributes().get_int("axis", 1);
  if (axis < 0) axis += std::ssize(logits);
  return {.low = 0,
          .high = logits[static_cast<size_t>(axis)].factor,
          .has_ignored = node.attributes().has("ignore_index"),
          .ignored = node.attributes().get_int("ignore_index", 0)};
}

std::vector<Example> cross_entropy_examples() {
  const ir::Attributes ignoring = {{"axis", int64_t{2}}, {"ignore_index", int64_t{1}}};
  return {{.inputs = {normal({kB, 5}), integers({kB}, 0, 5)}, .attributes = {{"axis", int64_t{1}}}, .outputs = 2},
          {.inputs = {normal({kB, 3, 5}), integers({kB, 3}, 0, 5)}, .attributes = ignoring, .outputs = 2},
          {.inputs = {normal({kB, 4, 2, 2}), integers({kB, 2, 2}, 0, 4)},
           .attributes = {{"axis", int64_t{1}}, {"ignore_index", int64_t{-100}}},
           .outputs = 2}};
}

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
Work sigmoid_flops(const NodeView& node, Samples samples) { return per_output_element(node, samples, 13); }

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

SampleSum scaled_by_samples(const NodeView&, std::span<const SampleSum> inputs) {
  return inputs[0] == SampleSum::kMean ? SampleSum::kSum : SampleSum::kNone;
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

std::vector<OpDef> cross_entropy_rows() {
  return {{.name = "CrossEntropyLossSum",
           .precision = Precision::kFloat32,
           .infer = infer_cross_entropy,
           .work = cross_entropy_work,
           .gradient = cross_entropy_gradient,
           .emit = emit_cross_entropy,
           .sample_sum = sums_samples,
           .ids = cross_entropy_ids,
           .examples = cross_entropy_examples()},
          {.name = "CrossEntropyLossSumGrad",
           .infer = infer_cross_entropy_gradient,
           .work = cross_entropy_gradient_work,
           .emit = emit_cross_entropy_gradient,
           .examples = {{.inputs = {normal({}), normal({kB, 5}), integers({kB}, 0, 5)},
                         .attributes = {{"axis", int64_t{1}}, {"ignore_index", int64_t{2}}}}}}};
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
           .examples = {{.inputs = {normal({})}}}}};
}

}  // namespace

std::span<const OpDef> loss_ops() {
  static const std::vector<OpDef> rows = joined({cross_entropy_rows(), elementwise_rows(), contrastive_rows()});
  return rows;
}

}  // namespace graphpipe::ops
