// ONNX's losses: NegativeLogLikelihoodLoss(log-probabilities, target, weight) and SoftmaxCrossEntropyLoss(scores,
// target, weight), class axis 1, reduction none, sum or mean. A mean divides by the weights of the counted positions
// of the micro-batch: only the losses of loss.cpp know those of the full batch.

#include <algorithm>

#include "ops/emit_helpers.h"
#include "ops/example_helpers.h"
#include "ops/families.h"
#include "ops/gradient_helpers.h"
#include "ops/infer_helpers.h"
#include "ops/joined_rows.h"
#include "ops/sample_sum.h"

namespace graphpipe::ops {
namespace {

std::string reduction_of(const NodeView& node) { return node.attributes().get_string("reduction", "mean"); }

/// Similarities of samples with samples: the classes are the samples. [B, B] of CLIP's own loss, [2*B, 2*B] of two
/// views of each (SimCLR), [B, 2*B] where each brings a negative of its own.
bool compares_samples(const ir::Shape& scores) {
  return scores.size() == 2 && scores[0].power == 1 && scores[1].power == 1;
}

Status expect_loss(const NodeView& node, const ir::Shape& scores, size_t target, size_t weight) {
  GP_TRY_VOID(expect_index(node, {target}));
  if (scores.size() < 2 || (!scores[1].is_fixed() && !compares_samples(scores))) {
    return bad_model(node, text("needs scores of shape [N, C, ...], found ", shape_text(scores)));
  }
  ir::Shape wanted = scores;
  wanted.erase(wanted.begin() + 1);
  if (node.input(target).type.shape != wanted) {
    return bad_model(node, text("needs a target of shape ", shape_text(wanted), ", found ",
                                shape_text(node.input(target).type.shape)));
  }
  if (node.has_input(weight) && node.input(weight).type.shape != ir::Shape{scores[1]}) {
    return bad_model(node, text("needs one weight per class, found ", shape_text(node.input(weight).type.shape)));
  }
  const std::string reduction = reduction_of(node);
  if (reduction == "none" || reduction == "sum" || reduction == "mean") return Ok{};
  return bad_model(node, "has a reduction other than none, sum and mean");
}

ir::Value loss_value(const NodeView& node) {
  const ir::TensorType& scores = node.input(0).type;
  if (reduction_of(node) != "none") return make_value(node, {scores.dtype, {}}, Mixing::kMixes);
  return make_value(node, {scores.dtype, node.input(1).type.shape});
}

Inferred infer_nll(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 2, 3));
  GP_TRY_VOID(expect_floating(node, {0}));
  GP_TRY_VOID(expect_loss(node, node.input(0).type.shape, 1, 2));
  return checked(node, {loss_value(node)});
}

Inferred infer_onnx_cross_entropy(const NodeView& node) {
  GP_TRY(std::vector<ir::Value> outputs, infer_nll(node));
  outputs.push_back(make_value(node, node.input(0).type));
  return checked(node, std::move(outputs));
}

/// For copies of the targets, as indices and as booleans, of the weights and of the terms of the sum.
double target_scratch(const NodeView& node, Samples samples) { return 32 * elements(node.input(1), samples); }
Work nll_work(const NodeView& node, Samples samples) {
  return {.flops = 3 * elements(node.input(1), samples),
          .bytes = bytes_touched(node, samples),
          .scratch = target_scratch(node, samples)};
}
Work onnx_cross_entropy_work(const NodeView& node, Samples samples) {
  Work work = per_input_element(node, samples, 14);
  work.scratch = target_scratch(node, samples);
  return work;
}
Work nll_gradient_work(const NodeView& node, Samples samples) {
  Work work = per_output_element(node, samples, 2);
  work.scratch = target_scratch(node, samples);
  return work;
}

/// Local variables of a call: the target with a class dim of one where ignored targets are class 0, and the weight of
/// each position, 0 where it is ignored.
struct Positions {
  std::string index, weights;
};

// `like` is an expression of the scores' type.
Positions emit_positions(Emitter& emitter, size_t target, size_t weight, const std::string& like) {
  const Positions names{emitter.local("index"), emitter.local("weights")};
  const ir::Attributes& attributes = emitter.node().attributes();
  const std::string given = emitter.in(target) + ".to(at::kLong).unsqueeze(1)";
  const bool ignores = attributes.has("ignore_index");
  const std::string ignored = emitter.local("ignored");
  if (ignores) {
    emitter.statement(
        text("const at::Tensor ", ignored, " = ", given, ".eq(", integer(attributes.get_int("ignore_index", 0)), ")"),
        "");
  }
  emitter.statement(
      text("const at::Tensor ", names.index, " = ", given, ignores ? text(".masked_fill(", ignored, ", 0)") : ""), "");
  const std::string ones = text("at::ones_like(", names.index, ", ", like, ".options())");
  const bool is_weighted = emitter.node().has_input(weight);
  const std::string weights = is_weighted ? text(emitter.in(weight), ".take(", names.index, ")") : ones;
  emitter.statement(
      text("const at::Tensor ", names.weights, " = ", weights, ignores ? text(".masked_fill(", ignored, ", 0.0)") : ""),
      is_weighted ? "" : "ATen/ops/ones_like.h");
  return names;
}

void assign_loss(Emitter& emitter, const std::string& log_probabilities) {
  const Positions positions = emit_positions(emitter, 1, 2, log_probabilities);
  const std::string each =
      text(log_probabilities, ".gather(1, ", positions.index, ").mul(", positions.weights, ").neg()");
  const std::string reduction = reduction_of(emitter.node());
  if (reduction == "none") return emitter.assign(0, each + ".squeeze(1)", "");
  const std::string divided = reduction == "mean" ? text(".div(", positions.weights, ".sum())") : "";
  emitter.assign(0, each + ".sum()" + divided, "");
}

void emit_nll(Emitter& emitter) { assign_loss(emitter, emitter.in(0)); }

void emit_onnx_cross_entropy(Emitter& emitter) {
  const std::string log_probabilities = emitter.local("log_probabilities");
  emitter.statement(text("at::Tensor ", log_probabilities, " = at::_log_softmax(", emitter.in(0), ", 1, false)"),
                    "ATen/ops/_log_softmax.h");
  assign_loss(emitter, log_probabilities);
  emitter.assign(1, text("std::move(", log_probabilities, ")"), "");
}

/// Without ignored positions and class weights, a mean weights every sample equally.
SampleSum reduction_over_samples(const NodeView& node, std::span<const SampleSum> inputs) {
  const std::string reduction = reduction_of(node);
  if (sums_samples(node, inputs) == SampleSum::kNone || reduction == "none") return SampleSum::kNone;
  if (reduction == "sum") return SampleSum::kSum;
  const bool counts_all = !node.attributes().has("ignore_index") && !node.has_input(2);
  return counts_all ? SampleSum::kMean : SampleSum::kNone;
}

/// With class weights, labels would not count equally.
std::optional<CountedLabels> counted_labels(const NodeView& node) {
  if (reduction_of(node) != "mean" || !node.attributes().has("ignore_index") || node.has_input(2)) return {};
  if (compares_samples(node.input(0).type.shape)) return {};
  return CountedLabels{.input = 1, .ignore_index = node.attributes().get_int("ignore_index", 0)};
}

wire::IdBounds label_ids(const NodeView& node, size_t i) {
  const ir::Dim classes = node.input(0).type.shape[1];
  if (i != 1 || !classes.is_fixed()) return {};
  return {.low = 0,
          .high = classes.factor,
          .has_ignored = node.attributes().has("ignore_index"),
          .ignored = node.attributes().get_int("ignore_index", 0)};
}

/// The softmax over a single class is 1, whatever its score.
int64_t samples_to_compare(const NodeView& node) {
  const ir::Shape& scores = node.input(0).type.shape;
  return compares_samples(scores) && scores[1].factor == 1 ? 2 : 1;
}

// --- gradient ---

/// The gradient of the log-probabilities; reads (gradient, target, weight or absent) {reduction, ignore_index, shape}.
ir::ValueId add_nll_gradient(GradientBuilder& builder) {
  ir::Attributes attributes = builder.forward().attributes();
  attributes.set("shape", builder.forward().input(0).type.shape);
  std::vector<ir::ValueId> inputs = {builder.output_gradient(0), builder.input(1)};
  if (builder.forward().has_input(2)) inputs.push_back(builder.input(2));
  return builder.add_one(0, "NegativeLogLikelihoodLossGrad", std::move(inputs), std::move(attributes));
}

Status refuse_weight_gradient(GradientBuilder& builder) {
  if (!builder.forward().has_input(2) || !builder.wants(2)) return Ok{};
  return problem_at(builder.forward(), Code::kUntrainable, "has class weights that would train",
                    "freeze the class weights");
}

Status nll_gradient(GradientBuilder& builder) {
  GP_TRY_VOID(refuse_weight_gradient(builder));
  if (builder.wants(0)) builder.set_input_gradient(0, add_nll_gradient(builder));
  return Ok{};
}

Status onnx_cross_entropy_gradient(GradientBuilder& builder) {
  GP_TRY_VOID(refuse_weight_gradient(builder));
  if (!builder.wants(0)) return Ok{};
  ir::ValueId gradient = builder.output_gradient(1);
  if (builder.output_gradient(0).valid()) {
    const ir::ValueId of_loss = add_nll_gradient(builder);
    gradient = gradient.valid() ? builder.add_one(0, "Add", {of_loss, gradient}) : of_loss;
  }
  builder.set_input_gradient(
      0, builder.add_one(0, "LogSoftmaxGrad", {gradient, builder.output(1)}, {{"axis", int64_t{1}}}));
  return Ok{};
}

Inferred infer_nll_gradient(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 2, 3));
  const ir::Shape shape = node.attributes().get_shape("shape");
  GP_TRY_VOID(expect_loss(node, shape, 1, 2));
  const Mixing mixing = reduction_of(node) == "mean" ? Mixing::kMixes : Mixing::kNone;
  return one_output(node, {node.input(0).type.dtype, shape}, mixing);
}

void emit_nll_gradient(Emitter& emitter) {
  const Positions positions = emit_positions(emitter, 1, 2, emitter.in(0));
  const std::string reduction = reduction_of(emitter.node()), result = emitter.local("gradient");
  const std::string gradient = emitter.in(0) + (reduction == "none" ? ".unsqueeze(1)" : "");
  const std::string divided = reduction == "mean" ? text(".div(", positions.weights, ".sum())") : "";
  emitter.statement(
      text("at::Tensor ", result, " = at::zeros(", emitter.dims(emitter.node().attributes().get_shape("shape")), ", ",
           emitter.in(0), ".options())"),
      "ATen/ops/zeros.h");
  emitter.assign(0,
                 text(result, ".scatter_(1, ", positions.index, ", at::neg(", positions.weights, ").mul(", gradient,
                      ")", divided, ")"),
                 "ATen/ops/neg.h");
}

// --- entries ---

ir::Attributes reducing(std::string reduction) { return {{"reduction", std::move(reduction)}}; }
ir::Attributes ignoring(std::string reduction, int64_t index) {
  return {{"reduction", std::move(reduction)}, {"ignore_index", index}};
}

std::vector<Example> loss_examples(size_t outputs) {
  const ExampleInput scores = normal({kB, 4}), target = integers({kB}, 0, 4);
  return {
      {.inputs = {scores, target}, .attributes = reducing("mean"), .outputs = outputs},
      {.inputs = {scores, target}, .attributes = ignoring("sum", 1), .outputs = outputs},
      {.inputs = {normal({kB, 3, 2}), integers({kB, 2}, 0, 3)}, .attributes = ignoring("none", 2), .outputs = outputs}};
}

std::vector<Example> nll_gradient_examples() {
  const ir::Shape shape = {kB, ir::Dim::fixed(4)};
  ir::Attributes attributes = ignoring("mean", 1);
  attributes.set("shape", shape);
  return {{.inputs = {normal({}), integers({kB}, 0, 4), weight(positive({4}))}, .attributes = attributes}};
}

}  // namespace

std::span<const OpDef> onnx_loss_ops() {
  static const std::vector<OpDef> rows = {{.name = "NegativeLogLikelihoodLoss",
                                           .precision = Precision::kFloat32,
                                           .infer = infer_nll,
                                           .work = nll_work,
                                           .gradient = nll_gradient,
                                           .emit = emit_nll,
                                           .sample_sum = reduction_over_samples,
                                           .counted_mean = counted_labels,
                                           .ids = label_ids,
                                           .examples = loss_examples(1)},
                                          {.name = "NegativeLogLikelihoodLossGrad",
                                           .infer = infer_nll_gradient,
                                           .work = nll_gradient_work,
                                           .emit = emit_nll_gradient,
                                           .examples = nll_gradient_examples()},
                                          {.name = "SoftmaxCrossEntropyLoss",
                                           .precision = Precision::kFloat32,
                                           .infer = infer_onnx_cross_entropy,
                                           .work = onnx_cross_entropy_work,
                                           .gradient = onnx_cross_entropy_gradient,
                                           .emit = emit_onnx_cross_entropy,
                                           .sample_sum = reduction_over_samples,
                                           .counted_mean = counted_labels,
                                           .ids = label_ids,
                                           .fewest_samples = samples_to_compare,
                                           .examples = loss_examples(2)}};
  return rows;
}

}  // namespace graphpipe::ops
