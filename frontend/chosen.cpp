#include "frontend/chosen.h"

#include <algorithm>

#include "ops/op_def.h"

namespace graphpipe::frontend {
namespace {

using ir::ValueId;

bool is_one_number(const ir::Shape& shape) {
  return std::ranges::all_of(shape, [](ir::Dim dim) { return dim == ir::Dim::fixed(1); });
}

Result<ValueId> as_scalar(NodeContext& context, ValueId condition) {
  if (context.lowering().graph().value(condition).type.shape.empty()) return condition;
  GP_TRY(const auto scalar, context.emit("Reshape", {condition}, {{"shape", ir::Shape()}}));
  return scalar[0];
}

}  // namespace

Result<ValueId> chosen(NodeContext& context, ValueId condition, ValueId yes, ValueId no) {
  if (yes == no) return yes;
  const ir::Graph& graph = context.lowering().graph();
  const ir::TensorType one = graph.value(yes).type, other = graph.value(no).type;
  const bool is_single = is_one_number(graph.value(condition).type.shape);
  if (one != other || !is_single)
    return context.problem(Code::kUnsupportedOp,
                           is_single ? "its condition depends on data, and its results have another type or shape "
                                       "where it is true than where it is not"
                                     : "its condition is no single number",
                           "give both the same type and shape, or export the model for one case");
  GP_TRY(condition, as_scalar(context, condition));
  GP_TRY(const auto made, context.emit("Where", {condition, yes, no}, {}));
  return made[0];
}

Status expect_no_effect(NodeContext& context, size_t first) {
  const ir::Graph& graph = context.lowering().graph();
  for (size_t i = first; i < graph.node_count(); ++i) {
    const ir::Node& node = graph.node(ir::NodeId(i));
    const ops::OpDef* entry = ops::find_op(node.op);
    if (entry->updates_inputs == nullptr || entry->updates_inputs(ops::NodeView(graph, node)) == 0) continue;
    return context.problem(Code::kUnsupportedOp,
                           text("its condition depends on data, and its node ",
                                quoted(node.origins.empty() ? ModelText(node.op) : node.origins.front()),
                                " would update statistics whether it is true or not"),
                           "take that node out of it, or use --batchnorm eval");
  }
  return Ok{};
}

Gates::Gates(NodeContext& context, ValueId condition, bool taken)
    : context_(context),
      condition_(condition),
      taken_(taken),
      // Any other condition is rejected if one of the results is chosen by it.
      is_trained_(!context.lowering().request().spec.loss.kind.empty() &&
                  is_one_number(context.lowering().graph().value(condition).type.shape)) {}

Result<Binding> Gates::gated(Binding binding) {
  const bool is_number = ir::is_floating(binding.type.dtype) && !binding.poisoned && !binding.is_absent &&
                         !is_sequence(binding) && !binding.selected && !binding.first_rows_of.valid();
  const bool may_train = is_trained_ && (!binding.known || binding.leaf);
  if (!is_number || !may_train) return binding;
  if (!is_prepared_) {
    GP_TRY(condition_, as_scalar(context_, condition_));
    if (!taken_) {
      GP_TRY(const auto negated, context_.emit("Not", {condition_}, {}));
      condition_ = negated[0];
    }
    is_prepared_ = true;
  }
  GP_TRY(const ValueId value, context_.lowering().value_of(binding, context_.node()));
  GP_TRY(const auto through, context_.emit("Gate", {value, condition_}, {}));
  binding.value = through[0];
  binding.data.reset();
  return binding;
}

Status Gates::close_name(const std::string& name) {
  Binding* outer = name.empty() || own_.count(name) > 0 ? nullptr : context_.lowering().find(name);
  if (outer == nullptr) return Ok{};
  own_.insert(name);
  // Create the parameter once, before the copy.
  if (outer->data && ir::is_floating(outer->type.dtype))
    GP_TRY_VOID(context_.lowering().value_of(*outer, context_.node()));
  const Binding before = *outer;
  GP_TRY(Binding through, gated(before));
  if (through.value == before.value) return Ok{};
  before_.emplace_back(name, before);
  context_.lowering().bind(name, std::move(through));
  return Ok{};
}

/// Names defined in the body itself, even if an inner body reads them, have no gate.
Status Gates::close_names(const GraphBody& body) {
  for (const ValueInfo& input : body.inputs) own_.insert(input.name);
  for (const OnnxNode& node : body.nodes) own_.insert(node.outputs.begin(), node.outputs.end());
  for (const OnnxNode& node : body.nodes) {
    for (const std::string& name : node.inputs) GP_TRY_VOID(close_name(name));
    for (const Attribute& attribute : node.attributes)
      for (const GraphBody& inner : attribute.graph) GP_TRY_VOID(close_names(inner));
  }
  return Ok{};
}

Status Gates::close(const GraphBody& body) { return is_trained_ ? close_names(body) : Status(Ok{}); }

void Gates::open() {
  for (auto& [name, binding] : before_) context_.lowering().bind(name, std::move(binding));
  before_.clear();
}

}  // namespace graphpipe::frontend
