// Results of PyTorch whose gradient at the edge of what they are defined on is another one than that of the operators
// that they are exported as: standard deviations and norms of rows that are zero, binary cross entropy of probabilities
// near 0 and 1, clamps at their bounds.

#include "frontend/exported_call.h"
#include "frontend/lower_clip.h"
#include "frontend/node_context.h"

namespace graphpipe::frontend {
namespace {

using ir::ValueId;

/// The node that makes this value, if it is of this operator.
const ir::Node* maker(const ir::Graph& graph, ValueId value, std::string_view op) {
  const ir::NodeId id = graph.value(value).producer;
  return id.valid() && graph.node(id).op == op ? &graph.node(id) : nullptr;
}

/// What the value repeats or has in another shape: the exporter writes keepdim so.
ValueId before_shapes(const ir::Graph& graph, ValueId value) {
  for (const std::string_view op : {"Expand", "Reshape"})
    if (const ir::Node* shaped = maker(graph, value, op)) value = shaped->inputs[0];
  return value;
}

/// Whether this is a sum or a mean of the squares of values from which their mean is taken, perhaps times and divided
/// by counts.
bool is_variance(const ir::Graph& graph, ValueId value) {
  value = before_shapes(graph, value);
  if (const ir::Node* quotient = maker(graph, value, "Div")) value = quotient->inputs[0];
  if (const ir::Node* product = maker(graph, value, "Mul")) value = product->inputs[0];
  const ir::Node* reduced = maker(graph, value, "ReduceMean");
  if (reduced == nullptr) reduced = maker(graph, value, "ReduceSum");
  if (reduced == nullptr) return false;
  const ir::Node* square = maker(graph, reduced->inputs[0], "Mul");
  if (square != nullptr && square->inputs[0] != square->inputs[1]) return false;
  if (square == nullptr) square = maker(graph, reduced->inputs[0], "Pow");
  const ir::Node* centred = square == nullptr ? nullptr : maker(graph, square->inputs[0], "Sub");
  const ir::Node* mean = centred == nullptr ? nullptr : maker(graph, centred->inputs[1], "ReduceMean");
  return mean != nullptr && mean->inputs[0] == centred->inputs[0];
}

/// The node as it is but where input 0 is zero: there the result is zero, and so is the gradient, which is infinite by
/// the operator, times zero by those before it.
Status lower_with_flat_zero(NodeContext& context, std::vector<ValueId> inputs) {
  const ir::DType dtype = context.type(0).dtype;
  GP_TRY(const ValueId zero, context.scalar(0, dtype));
  GP_TRY(const ValueId one, context.scalar(1, dtype));
  GP_TRY(const ValueId is_zero, context.emit_one("Equal", {inputs[0], zero}));
  GP_TRY(inputs[0], context.emit_one("Where", {is_zero, one, inputs[0]}));
  GP_TRY(const ValueId root, context.emit_one(context.node().op, std::move(inputs)));
  return context.emit_outputs("Where", {is_zero, zero, root}, {});
}

Status lower_sqrt(NodeContext& context) {
  GP_TRY(const ValueId input, context.value(0));
  return is_variance(context.lowering().graph(), input) ? lower_with_flat_zero(context, {input}) : lower_plain(context);
}

/// The root of the sum that torch.linalg.vector_norm is for orders other than 1 and 2.
Status lower_pow(NodeContext& context) {
  const std::optional<ExportedCall> call = parse_exported_call(context.node().exported_from);
  if (!call || call->target != "aten.linalg_vector_norm.default") return lower_plain(context);
  GP_TRY(std::vector<ValueId> inputs, context.all_values());
  return maker(context.lowering().graph(), inputs[0], "ReduceSum") ? lower_with_flat_zero(context, std::move(inputs))
                                                                   : lower_plain(context);
}

/// Whether this is the cut-off of a logarithm as torch.onnx writes it for F.binary_cross_entropy, which has no
/// operator.
bool is_cut_logarithm(NodeContext& context) {
  const std::optional<ExportedCall> call = parse_exported_call(context.node().exported_from);
  if (!call || call->target != "aten.maximum.default" || context.type(0).dtype != ir::DType::kFloat32) return false;
  if (!call->argument(0).starts_with("%log") || !call->argument(1).starts_with("%new_full")) return false;
  if (context.known(1) == nullptr) return false;
  const auto limit = context.reals(1, "lower bound");
  return limit.ok() && limit->size() == 1 && limit->front() == -100;
}

/// PyTorch's gradient of binary cross entropy is (p - t) / max(p (1 - p), 1e-12). By the logarithm of u, which is p or
/// 1 - p, this is (1 - u) / max(u (1 - u), 1e-12), where the operators have 1 / u down to e^-100.
Status lower_cut_logarithm(NodeContext& context) {
  GP_TRY(std::vector<ValueId> inputs, context.all_values());
  const ir::Node* logarithm = maker(context.lowering().graph(), inputs[0], "Log");
  if (logarithm == nullptr) return lower_plain(context);
  const ValueId u = logarithm->inputs[0];
  GP_TRY(const ValueId one, context.scalar(1, ir::DType::kFloat32));
  GP_TRY(const ValueId cut, context.emit_one("Max", std::move(inputs)));
  GP_TRY(const ValueId value, context.emit_one("Detach", {cut}));
  GP_TRY(const ValueId fixed, context.emit_one("Detach", {u}));
  GP_TRY(const ValueId rest, context.emit_one("Sub", {one, fixed}));
  GP_TRY(const ValueId product, context.emit_one("Mul", {fixed, rest}));
  GP_TRY(const ValueId divisor, context.emit_one("Clip", {product}, {{"min", 1e-12}}));
  GP_TRY(const ValueId slope, context.emit_one("Div", {rest, divisor}));
  GP_TRY(const ValueId change, context.emit_one("Sub", {u, fixed}));  // zero, but with a gradient
  GP_TRY(const ValueId scaled, context.emit_one("Mul", {slope, change}));
  return context.emit_outputs("Add", {value, scaled}, {});
}

Status lower_max(NodeContext& context) {
  return is_cut_logarithm(context) ? lower_cut_logarithm(context) : lower_bounded(context);
}

}  // namespace

std::vector<HandlerEntry> edge_handlers() { return {{"Sqrt", lower_sqrt}, {"Pow", lower_pow}, {"Max", lower_max}}; }

}  // namespace graphpipe::frontend
