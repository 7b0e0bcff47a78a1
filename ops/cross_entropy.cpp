// Cross entropy with class indices, summed over the positions that count, as training needs it (docs/semantics.md,
// section 4). Its gradient reads the logits and two numbers per position, so that the probabilities of all classes are
// never kept.

#include "ops/emit_helpers.h"
#include "ops/example_helpers.h"
#include "ops/families.h"
#include "ops/gradient_helpers.h"
#include "ops/infer_helpers.h"
#include "ops/sample_sum.h"

namespace graphpipe::ops {
namespace {

constexpr std::string_view kCrossEntropy = "runtime/kernels/cross_entropy.h";

// --- CrossEntropyLossSum(logits, labels) {axis, ignore_index}: outputs the loss, and for each position its largest
// logit and the logarithm of the sum of exponentials beside it ---

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
  const ir::TensorType& logits = node.input(0).type;
  const ir::Shape& labels = node.input(1).type.shape;
  GP_TRY(const int axis, class_axis(node, logits.shape));
  GP_TRY_VOID(expect_labels(node, logits.shape, labels, axis));
  ir::Shape sums = labels;
  sums.push_back(ir::Dim::fixed(2));
  return checked(
      node, {make_value(node, {logits.dtype, {}}, Mixing::kMixes), make_value(node, {logits.dtype, std::move(sums)})});
}

double label_copy_bytes(const ir::Value& labels) {
  return labels.type.dtype == ir::DType::kInt64 ? 0 : sizeof(int64_t);
}

/// Includes the loss of each position, and copies of labels that are not int64.
Work cross_entropy_work(const NodeView& node, Samples samples) {
  Work work = function_of_input(node, samples, 14);
  work.scratch = elements(node.input(1), samples) * (label_copy_bytes(node.input(1)) + sizeof(float));
  return work;
}
Work cross_entropy_gradient_work(const NodeView& node, Samples samples) {
  Work work = function_of_output(node, samples, 12);
  work.scratch = elements(node.input(2), samples) * label_copy_bytes(node.input(2));
  return work;
}

/// The axis of the classes, and the label that does not count.
std::string rule_of(const NodeView& node) {
  const ir::Attributes& attributes = node.attributes();
  const std::string ignored =
      attributes.has("ignore_index") ? integer(attributes.get_int("ignore_index", 0)) : "std::nullopt";
  return text(attributes.get_int("axis", 1), ", ", ignored);
}

void emit_cross_entropy(Emitter& emitter) {
  assign_parts(
      emitter,
      text("graphpipe::runtime::cross_entropy_sum(", filled_in(emitter, "$0, $1, "), rule_of(emitter.node()), ")"),
      kCrossEntropy, 2);
}

Status cross_entropy_gradient(GradientBuilder& builder) {
  if (!builder.wants(0)) return Ok{};
  const std::vector<ir::ValueId> inputs = {builder.input(0), builder.output(1), builder.input(1),
                                           builder.output_gradient(0)};
  builder.set_input_gradient(0, builder.add_one(0, "CrossEntropyLossSumGrad", inputs, builder.forward().attributes()));
  return Ok{};
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

// --- CrossEntropyLossSumGrad(logits, sums, labels, gradient) {axis, ignore_index} ---

Inferred infer_cross_entropy_gradient(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 4, 4));
  return one_output(node, node.input(0).type);
}

void emit_gradient_by(Emitter& emitter, std::string_view function) {
  assign_pattern(emitter, text("graphpipe::runtime::", function, "($0, $1, $2, $3, ", rule_of(emitter.node()), ")"),
                 kCrossEntropy);
}
void emit_cross_entropy_gradient(Emitter& emitter) { emit_gradient_by(emitter, "cross_entropy_gradient"); }
void emit_cross_entropy_gradient_in_place(Emitter& emitter) { emit_gradient_by(emitter, "cross_entropy_gradient_"); }

}  // namespace

std::span<const OpDef> cross_entropy_ops() {
  static const std::vector<OpDef> rows = {
      {.name = "CrossEntropyLossSum",
       .precision = Precision::kFloat32,
       .infer = infer_cross_entropy,
       .work = cross_entropy_work,
       .gradient = cross_entropy_gradient,
       .emit = emit_cross_entropy,
       .owns_outputs = always,
       .sample_sum = sums_samples,
       .ids = cross_entropy_ids,
       .examples = cross_entropy_examples()},
      {.name = "CrossEntropyLossSumGrad",
       .infer = infer_cross_entropy_gradient,
       .work = cross_entropy_gradient_work,
       .emit = emit_cross_entropy_gradient,
       .emit_in_place = emit_cross_entropy_gradient_in_place,
       .owns_outputs = always,
       .examples = {{.inputs = {normal({kB, 5}), normal({kB, 2}), integers({kB}, 0, 5), normal({})},
                     .attributes = {{"axis", int64_t{1}}, {"ignore_index", int64_t{2}}}}}}};
  return rows;
}

}  // namespace graphpipe::ops
