#include "passes/losses/loss_builder.h"

namespace graphpipe::passes {

using ir::Dim;
using ir::Shape;
using ir::ValueId;

Diagnostic bad_loss(const ModelText& origin, std::string message, std::string hint) {
  return {.code = Code::kBadLoss, .origin = origin, .message = std::move(message), .hint = std::move(hint)};
}

Result<ValueId> LossBuilder::append(std::string_view op, std::vector<ValueId> inputs, ir::Attributes attributes) {
  ir::Node node;
  node.op = op;
  node.attributes = std::move(attributes);
  node.inputs = std::move(inputs);
  node.origins = {ModelText("loss")};
  GP_TRY(const ir::NodeId id, append_node(graph_, std::move(node)));
  return graph_.node(id).outputs.front();
}

ValueId LossBuilder::add_input(const ModelText& name, ir::InputRole role, ir::DType dtype, Shape shape) {
  ir::Value value{.type = {dtype, std::move(shape)}, .batch = ir::BatchKind::kNone, .batch_axis = -1, .producer = {}};
  for (size_t i = 0; i < value.type.shape.size(); ++i) {
    if (value.type.shape[i].is_fixed()) continue;
    value.batch = ir::BatchKind::kAxis;
    value.batch_axis = static_cast<int>(i);
  }
  return graph_.add_input({.value = {}, .name = name, .role = role}, std::move(value));
}

ValueId LossBuilder::add_scale(ir::DType dtype, size_t terms) {
  Shape shape;
  if (terms > 0) shape.push_back(Dim::fixed(static_cast<int64_t>(terms) + 1));
  return add_input(ModelText("loss_scale"), ir::InputRole::kLossScale, dtype, std::move(shape));
}

ir::Input* LossBuilder::known_label() {
  for (ir::Input& input : graph_.inputs())
    if (input.name == spec_.label) return &input;
  return nullptr;
}

Result<ValueId> LossBuilder::label_of(ir::DType dtype, const Shape& shape) {
  if (spec_.label.empty())
    return bad_loss(spec_.output, "this loss needs a label", "name it: --loss NAME:OUTPUT,LABEL");
  if (ir::Input* existing = known_label()) {
    if (type(existing->value) != ir::TensorType{dtype, shape})
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
  const ValueId label = add_input(spec_.label, ir::InputRole::kLabel, dtype, stored);
  if (!is_flat) return label;
  return append("Reshape", {label}, {{"shape", shape}});
}

Result<AttachedLoss> LossBuilder::mean_over_elements(std::string_view op, ValueId output) {
  const ir::TensorType of_output = type(output);
  const std::optional<Dim> count = ir::element_count(of_output.shape);
  if (!count || count->power != 1 || count->factor < 1)
    return bad_loss(spec_.output,
                    "the loss is a mean over elements, and this output has no fixed number of them per sample",
                    "compute the mean in the model, and name it: --loss output:NAME");
  GP_TRY(const ValueId label, label_of(of_output.dtype, of_output.shape));
  GP_TRY(const ValueId sum, append(op, {output, label}));
  return AttachedLoss{sum, {.elements_per_sample = count->factor}};
}

}  // namespace graphpipe::passes
