#include "passes/attach_loss.h"

#include "passes/class_axis.h"

namespace graphpipe::passes {
namespace {

using ir::Dim;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Shape;
using ir::Value;
using ir::ValueId;

Diagnostic bad_loss(const ModelText& origin, std::string message, std::string hint) {
  return {.code = Code::kBadLoss, .origin = origin, .message = std::move(message), .hint = std::move(hint)};
}

/// Builds the nodes of one loss. Every node it makes carries the same origin.
class LossBuilder {
 public:
  LossBuilder(Graph graph, const PassContext& context)
      : graph_(std::move(graph)), context_(context), spec_(context.loss) {}

  Result<Graph> run() {
    GP_TRY(const ValueId output, find_output());
    report_activation(output);
    GP_TRY(const ValueId sum, sum_of(output));
    const ir::DType dtype = graph_.value(sum).type.dtype;
    const ValueId scale = graph_.add_input(
        {.value = {}, .name = ModelText("loss_scale"), .role = ir::InputRole::kLossScale}, leaf(dtype, {}));
    GP_TRY(const ValueId loss, append("Mul", {sum, scale}, {}));
    if (!context_.forward_only) graph_.outputs().clear();
    graph_.outputs().push_back({.value = loss, .name = ModelText("loss"), .role = ir::OutputRole::kLoss});
    return std::move(graph_);
  }

 private:
  /// A value without a producer; its batch kind follows from its shape.
  static Value leaf(ir::DType dtype, Shape shape) {
    Value value{.type = {dtype, std::move(shape)}, .batch = ir::BatchKind::kNone, .batch_axis = -1, .producer = {}};
    for (size_t i = 0; i < value.type.shape.size(); ++i) {
      if (value.type.shape[i].is_fixed()) continue;
      value.batch = ir::BatchKind::kAxis;
      value.batch_axis = static_cast<int>(i);
    }
    return value;
  }

  Result<ValueId> append(std::string_view op, std::vector<ValueId> inputs, ir::Attributes attributes) {
    Node node;
    node.op = op;
    node.attributes = std::move(attributes);
    node.inputs = std::move(inputs);
    node.origins = {ModelText("loss")};
    GP_TRY(const NodeId id, append_node(graph_, std::move(node)));
    return graph_.node(id).outputs.front();
  }

  Result<ValueId> find_output() const {
    std::string names;
    for (const ir::Output& output : graph_.outputs()) {
      if (output.name == spec_.output) return output.value;
      names += text(names.empty() ? "" : ", ", quoted(output.name));
    }
    return bad_loss(spec_.output, "the model has no output of this name", text("choose one of: ", names));
  }

  void report_activation(ValueId output) const {
    const NodeId producer = graph_.value(output).producer;
    if (!producer.valid()) return;
    const std::string& op = graph_.node(producer).op;
    const bool doubled = (spec_.kind == LossKind::kCrossEntropy && (op == "Softmax" || op == "LogSoftmax")) ||
                         (spec_.kind == LossKind::kBceWithLogits && op == "Sigmoid");
    if (!doubled) return;
    context_.note({.code = Code::kBadLoss,
                   .severity = Severity::kWarning,
                   .origin = origin_of(graph_, producer),
                   .message = text("the output is already a ", op, ", and the loss applies its own"),
                   .hint = "train on the logits: export the model without its last activation"});
  }

  Result<ValueId> sum_of(ValueId output) {
    if (!ir::is_floating(graph_.value(output).type.dtype))
      return bad_loss(spec_.output, "a loss needs a floating-point output", "name another output");
    switch (spec_.kind) {
      case LossKind::kCrossEntropy:
        return cross_entropy(output);
      case LossKind::kMeanSquaredError:
        return elementwise("MeanSquaredErrorSum", output);
      case LossKind::kBceWithLogits:
        return elementwise("BceWithLogitsSum", output);
      case LossKind::kContrastive:
        return contrastive(output);
      case LossKind::kOutput:
        return own_output(output);
      case LossKind::kNone:
        break;
    }
    return bad_loss(spec_.output, "no loss was named", "use --loss NAME:OUTPUT[,LABEL]");
  }

  /// The model's input of the label's name, if there is one.
  ir::Input* find_label() {
    for (ir::Input& input : graph_.inputs())
      if (input.name == spec_.label) return &input;
    return nullptr;
  }

  /// The label as the loss reads it. A new label of flattened rows [T*B, ...] lies in the data as [B, T, ...].
  Result<ValueId> label_of(ir::DType dtype, const Shape& shape) {
    if (spec_.label.empty())
      return bad_loss(spec_.output, "this loss needs a label", "name it: --loss NAME:OUTPUT,LABEL");
    if (ir::Input* existing = find_label()) {
      if (graph_.value(existing->value).type != ir::TensorType{dtype, shape})
        return bad_loss(spec_.label, "the model's input of this name does not fit the output as its label",
                        "use another name for the label, or export the model with a label of that shape");
      existing->role = ir::InputRole::kLabel;
      return existing->value;
    }
    Shape stored = shape;
    const bool is_flat = !shape.empty() && shape.front().power == 1 && shape.front().factor > 1;
    if (is_flat) {
      stored.front() = Dim::batch();
      stored.insert(stored.begin() + 1, Dim::fixed(shape.front().factor));
    }
    const ValueId label =
        graph_.add_input({.value = {}, .name = spec_.label, .role = ir::InputRole::kLabel}, leaf(dtype, stored));
    if (!is_flat) return label;
    return append("Reshape", {label}, {{"shape", shape}});
  }

  Result<ValueId> cross_entropy(ValueId logits) {
    const ir::Input* existing = find_label();
    const ValueId known_label = existing ? existing->value : ValueId();
    GP_TRY(const int axis, find_class_axis(graph_, logits, known_label, spec_));
    Shape shape = graph_.value(logits).type.shape;
    shape.erase(shape.begin() + axis);
    const ir::DType dtype = known_label.valid() ? graph_.value(known_label).type.dtype : ir::DType::kInt64;
    GP_TRY(const ValueId label, label_of(dtype, shape));
    return append("CrossEntropyLossSum", {logits, label},
                  {{"axis", int64_t{axis}}, {"ignore_index", spec_.ignore_index}});
  }

  Result<ValueId> elementwise(std::string_view op, ValueId output) {
    const ir::TensorType type = graph_.value(output).type;
    GP_TRY(const ValueId label, label_of(type.dtype, type.shape));
    return append(op, {output, label}, {});
  }

  Result<ValueId> contrastive(ValueId output) {
    const Shape& shape = graph_.value(output).type.shape;
    if (shape.size() != 2 || shape[0] != Dim::batch() || shape[1] != Dim::batch())
      return bad_loss(spec_.output, "a contrastive loss needs a similarity output of shape [batch, batch]",
                      "name the output that compares all samples with all, such as logits_per_image");
    return append("ContrastiveLossSum", {output}, {});
  }

  Result<ValueId> own_output(ValueId output) {
    const std::optional<Dim> count = ir::element_count(graph_.value(output).type.shape);
    if (!count || *count != Dim::fixed(1))
      return bad_loss(spec_.output, "a loss must be a scalar, this output is not", "name a scalar output");
    ValueId scalar = output;
    if (!graph_.value(output).type.shape.empty()) {
      GP_TRY(scalar, append("Reshape", {output}, {{"shape", Shape{}}}));
    }
    if (spec_.reduction == LossReduction::kSum) return scalar;
    return append("ScaleBySamples", {scalar}, {});
  }

  Graph graph_;
  const PassContext& context_;
  const LossSpec& spec_;
};

}  // namespace

Result<Graph> attach_loss(Graph graph, const PassContext& context) {
  if (context.loss.kind == LossKind::kNone) return graph;
  return LossBuilder(std::move(graph), context).run();
}

}  // namespace graphpipe::passes
