// BatchNormalization(x, scale, bias, mean, variance), in three forms.
//  - Training (training_mode=1): statistics of the micro-batch; updates mean and variance in place as running averages.
//    Its outputs are y, the batch's mean and 1/deviation. It mixes samples, yet each row of y belongs to one sample.
//    Replicas that divide the micro-batch exchange their sums, as those of PyTorch's SyncBatchNorm do.
//    ONNX averages the population variance, PyTorch the unbiased one: attribute "unbiased_variance".
//  - Frozen statistics: y = x * a + b per channel.
//  - Computed statistics: mean and variance come from other nodes, and gradients flow into them.
// x, y and their gradients may be of bfloat16 while the numbers of channels are of float32, but for the gradients of
// frozen and computed statistics. ONNX's momentum weighs the old average.

#include <algorithm>

#include "ops/emit_helpers.h"
#include "ops/example_helpers.h"
#include "ops/families.h"
#include "ops/gradient_helpers.h"
#include "ops/infer_helpers.h"
#include "ops/joined_rows.h"
#include "ops/norm_helpers.h"
#include "wire/function_flops.h"

namespace graphpipe::ops {
namespace {

constexpr std::string_view kBatchNorm = "runtime/kernels/batch_norm.h";
// Of the StageArguments.
constexpr std::string_view kReplicas = "a.replicas";

bool is_training(const NodeView& node) { return node.attributes().get_int("training_mode", 0) != 0; }
// Whether x has another type than the numbers of channels.
bool has_two_types(const NodeView& node) { return node.input(0).type.dtype != node.input(1).type.dtype; }
// The batch kind of y: rows of y belong to rows of x, however the statistics were computed.
ir::Value row_value(const ir::Value& x) {
  ir::Value value{.type = x.type, .batch = x.batch, .batch_axis = x.batch_axis};
  return value;
}

Status expect_batch_norm(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 5, 5));
  GP_TRY_VOID(expect_floating(node, {0}));
  GP_TRY_VOID(expect_same_dtype(node, {1, 2, 3, 4}));
  const bool is_mixed =
      node.input(0).type.dtype == ir::DType::kBFloat16 && node.input(1).type.dtype == ir::DType::kFloat32;
  if (!is_mixed) {
    GP_TRY_VOID(expect_same_dtype(node, {0, 1}));
  }
  const ir::Shape& shape = node.input(0).type.shape;
  if (shape.size() < 2) return bad_model(node, text("needs [N, C, ...], found ", shape_text(shape)));
  if (!shape[1].is_fixed()) {
    return problem_at(node, Code::kBatchNotFound, text("has the batch as its channels, in ", shape_text(shape)),
                      "put the samples on axis 0");
  }
  for (size_t i = 1; i < 5; ++i) {
    if (node.input(i).type.shape == ir::Shape{shape[1]}) continue;
    return bad_model(node, text("needs input ", i, " of shape ", shape_text({shape[1]}), ", found ",
                                shape_text(node.input(i).type.shape)));
  }
  return Ok{};
}

Inferred infer_batch_norm(const NodeView& node) {
  GP_TRY_VOID(expect_batch_norm(node));
  const ir::Value& x = node.input(0);
  if (!is_training(node)) return one_output(node, x.type);
  ir::Value statistic{.type = {node.input(1).type.dtype, {x.type.shape[1]}}};
  if (x.batch != ir::BatchKind::kNone) statistic.batch = ir::BatchKind::kMixed;
  return checked(node, {row_value(x), statistic, statistic});
}

bool has_given_statistics(const NodeView& node) { return !is_training(node); }
std::optional<ir::Attributes> batch_norm_in_evaluation(const NodeView& node) {
  if (!is_training(node)) return std::nullopt;
  ir::Attributes attributes = node.attributes();
  attributes.set("training_mode", int64_t{0});
  return attributes;
}
bool mixes(const NodeView& node) { return is_training(node) && node.input(0).batch != ir::BatchKind::kNone; }
bool sums_over_replicas(const NodeView& node) {
  return is_training(node) && node.input(0).batch == ir::BatchKind::kAxis;
}
bool gradient_mixes(const NodeView& node) { return node.input(1).batch != ir::BatchKind::kNone; }
/// A single value has no deviation: a channel needs a second, from another position or another sample.
int64_t samples_of_statistics(const NodeView& node) {
  const ir::Shape& shape = node.input(0).type.shape;
  const std::optional<ir::Dim> values = mixes(node) ? ir::element_count(shape) : std::nullopt;
  return values && ir::size_at(*values, Samples(1)) == shape[1].factor ? 2 : 1;
}
uint32_t updated(const NodeView& node) { return is_training(node) ? 0b11000U : 0U; }

Work forward_work(const NodeView& node, Samples samples) {
  return function_of_output(node, samples, wire::kOwnNormFlops);
}
Work input_gradient_work(const NodeView& node, Samples samples) {
  return function_of_output(node, samples, wire::kOwnNormGradientFlops);
}
Work reduction_work(const NodeView& node, Samples samples) {
  return function_of_input(node, samples, wire::kOwnNormFlops);
}

// ".view({-1, 1, 1})": makes a per-channel tensor broadcast to x of this rank.
std::string channel_view(size_t rank) {
  std::vector<int64_t> sizes(rank - 1, 1);
  sizes.front() = -1;
  return text(".view(", list(sizes), ")");
}

// --- forward ---

// ONNX's average of the population variance, computed from the kernel's 1/deviation.
void emit_population_update(Emitter& emitter, const std::string& parts) {
  const double keep = emitter.node().attributes().get_double("momentum", 0.9);
  const std::string take = number(1 - keep);
  emitter.statement(text(emitter.in(3), ".mul_(", number(keep), ").add_(std::get<1>(", parts, "), ", take, ")"), "");
  emitter.statement(text(emitter.in(4), ".mul_(", number(keep), ").add_(std::get<2>(", parts, ").pow(-2).sub_(",
                         epsilon_text(emitter.node()), "), ", take, ")"),
                    "");
}

void emit_training(Emitter& emitter) {
  const NodeView& node = emitter.node();
  const bool unbiased = node.attributes().get_int("unbiased_variance", 0) != 0;
  const std::string parts = emitter.local("parts");
  const std::string running = unbiased ? text(emitter.in(3), ", ", emitter.in(4)) : "{}, {}";
  const double take = 1 - node.attributes().get_double("momentum", 0.9);
  emitter.statement(
      text("auto ", parts, " = graphpipe::runtime::batch_norm(", emitter.in(0), ", ", emitter.in(1), ", ",
           emitter.in(2), ", ", running, ", ", number(take), ", ", epsilon_text(node), ", ", kReplicas, ")"),
      kBatchNorm);
  if (!unbiased) emit_population_update(emitter, parts);
  for (size_t i = 0; i < 3; ++i) emitter.assign(i, text("std::move(std::get<", i, ">(", parts, "))"), "");
}

void emit_batch_norm(Emitter& emitter) {
  const NodeView& node = emitter.node();
  if (is_training(node)) return emit_training(emitter);
  // x * factor + offset, both per channel, in one pass over x.
  const std::string view = channel_view(node.input(0).type.shape.size()), factor = emitter.local("factor");
  emitter.statement(text("const at::Tensor ", factor, " = ", emitter.in(4), ".add(", epsilon_text(node),
                         ").rsqrt().mul(", emitter.in(1), ")"),
                    "");
  emitter.assign(0,
                 text("at::addcmul(at::sub(", emitter.in(2), ", ", emitter.in(3), ".mul(", factor, "))", view, ", ",
                      emitter.in(0), ", ", factor, view, ")", has_two_types(node) ? ".to(at::kBFloat16)" : ""),
                 "ATen/ops/addcmul.h");
  emitter.include("ATen/ops/sub.h");
}

// --- gradient ---

void add_training_gradients(GradientBuilder& builder, const ir::Attributes& attributes) {
  const std::vector<ir::ValueId> inputs = {builder.output_gradient(0), builder.input(0), builder.input(1),
                                           builder.output(1), builder.output(2)};
  add_norm_gradients(builder, "BatchNormalization", inputs, attributes);
}

void add_frozen_gradients(GradientBuilder& builder, const ir::Attributes& attributes) {
  const ir::ValueId gradient = builder.output_gradient(0), x = builder.input(0), scale = builder.input(1);
  const ir::ValueId mean = builder.input(3), variance = builder.input(4);
  if (builder.wants(0)) {
    builder.set_input_gradient(
        0, builder.add_one(0, "BatchNormalizationGradFrozenInput", {gradient, scale, variance}, attributes));
  }
  if (builder.wants(1)) {
    builder.set_input_gradient(
        1, builder.add_one(1, "BatchNormalizationGradFrozenScale", {gradient, x, mean, variance}, attributes));
  }
  if (builder.wants(2)) builder.set_input_gradient(2, builder.add_one(2, "BatchNormalizationGradBias", {gradient}));
  if (builder.wants(3)) {
    builder.set_input_gradient(
        3, builder.add_one(3, "BatchNormalizationGradMean", {gradient, scale, variance}, attributes));
  }
  if (builder.wants(4)) {
    builder.set_input_gradient(
        4, builder.add_one(4, "BatchNormalizationGradVariance", {gradient, x, mean, variance, scale}, attributes));
  }
}

Status batch_norm_gradient(GradientBuilder& builder) {
  const NodeView& forward = builder.forward();
  const ir::Attributes attributes = {{"epsilon", forward.attributes().get_double("epsilon", 1e-5)}};
  if (!is_training(forward)) {
    if (has_two_types(forward))
      return problem_at(forward, Code::kUntrainable,
                        "has x of bfloat16 and frozen statistics of float32, for which there are no gradients",
                        "give it inputs of one type");
    add_frozen_gradients(builder, attributes);
    return Ok{};
  }
  GP_TRY_VOID(expect_no_gradient_of_saved(builder, 1));
  add_training_gradients(builder, attributes);
  return Ok{};
}

// (gradient, x, scale, mean, 1/deviation) of the training form
Inferred infer_training_grad_input(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 5, 5));
  ir::Value value = row_value(node.input(1));
  if (node.input(0).batch == ir::BatchKind::kMixed) value = make_value(node, value.type, Mixing::kMixes);
  return norm_gradient_values(node, value, node.input(2).type);
}
Inferred infer_training_grad_weight(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 5, 5));
  return norm_gradient_values(node, std::nullopt, node.input(2).type);
}

void emit_training_gradient(Emitter& emitter, std::string_view mask) {
  emitter.statement(text("auto ", emitter.local("parts"), " = graphpipe::runtime::batch_norm_backward(", emitter.in(0),
                         ", ", emitter.in(1), ", ", emitter.in(2), ", ", emitter.in(3), ", ", emitter.in(4), ", ",
                         epsilon_text(emitter.node()), ", {", mask, "}, ", kReplicas, ")"),
                    kBatchNorm);
}
void emit_training_grad_input(Emitter& emitter) { emit_norm_grad_input(emitter, emit_training_gradient); }
void emit_training_grad_weight(Emitter& emitter) { emit_norm_grad_weight(emitter, emit_training_gradient); }

// Gradients of one number per channel: [C] of gradient's type.
Inferred infer_per_channel(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 5));
  const ir::TensorType& type = node.input(0).type;
  if (type.shape.size() < 2) return bad_model(node, "needs a gradient of shape [N, C, ...]");
  return one_output(node, {type.dtype, {type.shape[1]}}, Mixing::kMixes);
}

std::string reduced_axes(const NodeView& node) {
  std::vector<int64_t> axes = {0};
  for (size_t axis = 2; axis < node.input(0).type.shape.size(); ++axis) axes.push_back(static_cast<int64_t>(axis));
  return text("at::IntArrayRef(", list(axes), ")");
}

// The sum of an expression over all axes but the channels.
std::string channel_sum(Emitter& emitter, const std::string& expression) {
  return text("at::sum(", expression, ", ", reduced_axes(emitter.node()), ")");
}
std::string inverse_deviation(const Emitter& emitter, size_t variance) {
  return text(emitter.in(variance), ".add(", epsilon_text(emitter.node()), ").rsqrt()");
}
// gradient * (x - mean), inputs 0, 1 and 2
std::string centered_product(const Emitter& emitter) {
  const std::string view = channel_view(emitter.node().input(0).type.shape.size());
  return text(emitter.in(1), ".sub(", emitter.in(2), view, ").mul_(", emitter.in(0), ")");
}

// (gradient, scale, variance)
void emit_frozen_grad_input(Emitter& emitter) {
  const std::string view = channel_view(emitter.node().input(0).type.shape.size());
  emitter.assign(
      0, text("at::mul(", emitter.in(0), ", ", inverse_deviation(emitter, 2), ".mul(", emitter.in(1), ")", view, ")"),
      "ATen/ops/mul.h");
}
// (gradient, x, mean, variance)
void emit_frozen_grad_scale(Emitter& emitter) {
  emitter.assign(0, text(channel_sum(emitter, centered_product(emitter)), ".mul_(", inverse_deviation(emitter, 3), ")"),
                 kSumHeader);
}
void emit_grad_bias(Emitter& emitter) { emitter.assign(0, channel_sum(emitter, emitter.in(0)), kSumHeader); }
// (gradient, scale, variance)
void emit_grad_mean(Emitter& emitter) {
  emitter.assign(0,
                 text(channel_sum(emitter, emitter.in(0)), ".mul_(", emitter.in(1), ").mul_(",
                      inverse_deviation(emitter, 2), ").neg_()"),
                 kSumHeader);
}
// (gradient, x, mean, variance, scale)
void emit_grad_variance(Emitter& emitter) {
  emitter.assign(0,
                 text(channel_sum(emitter, centered_product(emitter)), ".mul_(", emitter.in(4), ").mul_(",
                      inverse_deviation(emitter, 3), ".pow(3)).mul_(-0.5)"),
                 kSumHeader);
}

// --- entries ---

std::vector<ExampleInput> forward_inputs(const ExampleShape& x) {
  return {normal(x), weight(normal({3})), weight(normal({3})), weight(normal({3})), weight(positive({3}))};
}
std::vector<ExampleInput> computed_inputs() {
  return {normal({kB, 3, 2}), weight(normal({3})), weight(normal({3})), normal({3}), positive({3})};
}
std::vector<ExampleInput> training_gradient_inputs() {
  return {normal({kB, 3, 4}), normal({kB, 3, 4}), weight(normal({3})), normal({3}), positive({3})};
}

std::vector<OpDef> forward_and_training_rows() {
  const ir::Attributes training = {{"training_mode", int64_t{1}}, {"momentum", 0.8}, {"epsilon", 0.01}};
  return {{.name = "BatchNormalization",
           .precision = Precision::kAsFirstInput,
           .keeps_float32 = has_given_statistics,
           .infer = infer_batch_norm,
           .work = forward_work,
           .gradient = batch_norm_gradient,
           .emit = emit_batch_norm,
           .owns_outputs = always,
           .features = FeatureAxis::kSecond,
           .roles = {ParameterRole::kConstant, ParameterRole::kScale, ParameterRole::kBias, ParameterRole::kStatistic,
                     ParameterRole::kStatistic},
           .mixes_samples = mixes,
           .sums_over_replicas = sums_over_replicas,
           .fewest_samples = samples_of_statistics,
           .in_evaluation = batch_norm_in_evaluation,
           .updates_inputs = updated,
           .examples = {{.inputs = forward_inputs({kB, 3, 4, 2})},
                        {.inputs = computed_inputs(), .attributes = {{"epsilon", 0.01}}},
                        {.inputs = forward_inputs({kB, 3, 4}), .attributes = training, .outputs = 3}}},
          {.name = "BatchNormalizationGradInput",
           .infer = infer_training_grad_input,
           .work = input_gradient_work,
           .emit = emit_training_grad_input,
           .owns_outputs = always,
           .mixes_samples = gradient_mixes,
           .examples = {{.inputs = training_gradient_inputs()},
                        {.inputs = training_gradient_inputs(),
                         .attributes = {{"gives_scale", int64_t{1}}, {"gives_bias", int64_t{1}}},
                         .outputs = 3}}},
          {.name = "BatchNormalizationGradWeight",
           .infer = infer_training_grad_weight,
           .work = reduction_work,
           .emit = emit_training_grad_weight,
           .owns_outputs = always,
           .examples = {{.inputs = training_gradient_inputs(),
                         .attributes = {{"gives_scale", int64_t{1}}, {"gives_bias", int64_t{1}}},
                         .outputs = 2}}}};
}

std::vector<OpDef> frozen_rows() {
  const ExampleInput rows = normal({kB, 3, 4}), numbers = weight(normal({3})), variance = weight(positive({3}));
  return {{.name = "BatchNormalizationGradFrozenInput",
           .infer = same_as_first_input,
           .work = one_flop_per_element,
           .emit = emit_frozen_grad_input,
           .examples = {{.inputs = {rows, numbers, variance}}}},
          {.name = "BatchNormalizationGradFrozenScale",
           .infer = infer_per_channel,
           .work = reduction_work,
           .temporaries = 1.25,
           .emit = emit_frozen_grad_scale,
           .examples = {{.inputs = {rows, rows, numbers, variance}}}},
          {.name = "BatchNormalizationGradBias",
           .infer = infer_per_channel,
           .work = reduction_work,
           .emit = emit_grad_bias,
           .examples = {{.inputs = {rows}}}},
          {.name = "BatchNormalizationGradMean",
           .infer = infer_per_channel,
           .work = reduction_work,
           .emit = emit_grad_mean,
           .examples = {{.inputs = {rows, numbers, variance}}}},
          {.name = "BatchNormalizationGradVariance",
           .infer = infer_per_channel,
           .work = reduction_work,
           .temporaries = 1.5,
           .emit = emit_grad_variance,
           .examples = {{.inputs = {rows, rows, numbers, variance, numbers}}}}};
}

}  // namespace

std::span<const OpDef> batch_norm_ops() {
  static const std::vector<OpDef> rows = joined({forward_and_training_rows(), frozen_rows()});
  return rows;
}

}  // namespace graphpipe::ops
