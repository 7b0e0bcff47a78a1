// Results of PyTorch whose gradient at the edge of what they are defined on is another one than that of the operators
// that they are exported as: standard deviations and norms of rows that are zero, binary cross entropy of probabilities
// near 0 and 1, clamps at their bounds, sinc, xlogy and atan2 at zero, logarithms of sigmoids that are zero in their
// type.

#include "frontend/lower_edges.h"

#include <numbers>

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

/// The logarithm of a sigmoid: -softplus(-x), as PyTorch computes logsigmoid. A call of torch.log, which takes its
/// argument as it is, stays.
Status lower_log(NodeContext& context) {
  const std::optional<ExportedCall> call = parse_exported_call(context.node().exported_from);
  if (call && call->target != "aten.log_sigmoid.default") return lower_plain(context);
  GP_TRY(const ValueId input, context.value(0));
  const ir::Node* const sigmoid = maker(context.lowering().graph(), input, "Sigmoid");
  if (sigmoid == nullptr) return lower_plain(context);
  const ValueId x = sigmoid->inputs[0];
  GP_TRY(const ValueId below, context.emit_one("Neg", {x}));
  GP_TRY(const ValueId softplus, context.emit_one("Softplus", {below}));
  return context.emit_outputs("Neg", {softplus}, {});
}

/// sin(pi x) / (pi x), and 1 where x is zero: there the quotient that is not chosen is one of ones.
Result<bool> lower_sinc(NodeContext& context, ValueId is_zero, ValueId quotient) {
  const ir::Graph& graph = context.lowering().graph();
  const ir::Node* const division = maker(graph, quotient, "Div");
  const ir::Node* const sine = division == nullptr ? nullptr : maker(graph, division->inputs[0], "Sin");
  if (sine == nullptr || sine->inputs[0] != division->inputs[1]) return false;
  const ValueId angle = sine->inputs[0];
  GP_TRY(const ValueId at_zero, context.value(1));
  GP_TRY(const ValueId one, context.scalar(1, context.type(2).dtype));
  GP_TRY(const ValueId safe, context.emit_one("Where", {is_zero, one, angle}));
  GP_TRY(const ValueId above, context.emit_one("Sin", {safe}));
  GP_TRY(const ValueId found, context.emit_one("Div", {above, safe}));
  GP_TRY_VOID(context.emit_outputs("Where", {is_zero, at_zero, found}, {}));
  return true;
}

/// x log(y), and 0 where x is zero, with the gradient log(y) there if y has a logarithm: else that of 1 is taken.
Result<bool> lower_xlogy(NodeContext& context, ValueId is_zero, ValueId with_nans) {
  const ir::Graph& graph = context.lowering().graph();
  const ir::Node* const choice = maker(graph, with_nans, "Where");
  const ir::Node* const product = choice == nullptr ? nullptr : maker(graph, choice->inputs[2], "Mul");
  const ir::Node* const logarithm = product == nullptr ? nullptr : maker(graph, product->inputs[1], "Log");
  if (logarithm == nullptr) return false;
  const ValueId x = product->inputs[0], y = logarithm->inputs[0];
  GP_TRY(const ValueId zero, context.scalar(0, context.type(2).dtype));
  GP_TRY(const ValueId one, context.scalar(1, context.type(2).dtype));
  GP_TRY(const ValueId is_not_above, context.emit_one("LessOrEqual", {y, zero}));  // not of NaN, which stays
  GP_TRY(const ValueId is_infinite, context.emit_one("IsInf", {y}));
  GP_TRY(const ValueId has_none, context.emit_one("Or", {is_not_above, is_infinite}));
  GP_TRY(const ValueId is_cut, context.emit_one("And", {is_zero, has_none}));
  GP_TRY(const ValueId safe, context.emit_one("Where", {is_cut, one, y}));
  GP_TRY(const ValueId found, context.emit_one("Log", {safe}));
  GP_TRY_VOID(context.emit_outputs("Mul", {x, found}, {}));
  return true;
}

/// atan2(y, x) by the quotient of the smaller and the larger of the two, so that no divisor is zero: turned by pi where
/// x is below zero, and measured from the vertical where y is the larger. Flat where both are zero.
Status emit_atan2(NodeContext& context, ValueId y, ValueId x, ir::DType dtype) {
  constexpr double kHalf = std::numbers::pi / 2;
  GP_TRY(const ValueId zero, context.scalar(0, dtype));
  GP_TRY(const ValueId one, context.scalar(1, dtype));
  const auto with_sign_of_y = [&](double angle) -> Result<ValueId> {
    GP_TRY(const ValueId is_below, context.emit_one("Less", {y, zero}));
    GP_TRY(const ValueId above, context.scalar(angle, dtype));
    GP_TRY(const ValueId below, context.scalar(-angle, dtype));
    return context.emit_one("Where", {is_below, below, above});
  };
  GP_TRY(const ValueId size_x, context.emit_one("Abs", {x}));
  GP_TRY(const ValueId size_y, context.emit_one("Abs", {y}));
  GP_TRY(const ValueId is_steep, context.emit_one("Greater", {size_y, size_x}));
  GP_TRY(const ValueId larger, context.emit_one("Where", {is_steep, y, x}));
  GP_TRY(const ValueId smaller, context.emit_one("Where", {is_steep, x, y}));
  GP_TRY(const ValueId is_zero, context.emit_one("Equal", {larger, zero}));
  GP_TRY(const ValueId divisor, context.emit_one("Where", {is_zero, one, larger}));
  GP_TRY(const ValueId dividend, context.emit_one("Where", {is_zero, zero, smaller}));
  GP_TRY(const ValueId quotient, context.emit_one("Div", {dividend, divisor}));
  GP_TRY(const ValueId angle, context.emit_one("Atan", {quotient}));
  GP_TRY(const ValueId vertical, with_sign_of_y(kHalf));
  GP_TRY(const ValueId from_vertical, context.emit_one("Sub", {vertical, angle}));
  GP_TRY(const ValueId is_left, context.emit_one("Less", {x, zero}));
  GP_TRY(const ValueId half_turn, with_sign_of_y(2 * kHalf));
  GP_TRY(const ValueId turn, context.emit_one("Where", {is_left, half_turn, zero}));
  GP_TRY(const ValueId from_axis, context.emit_one("Add", {angle, turn}));
  return context.emit_outputs("Where", {is_steep, from_vertical, from_axis}, {});
}

/// The last choice is that of zero where the others give NaN.
Result<bool> lower_atan2(NodeContext& context, ValueId is_nan, ValueId with_nans) {
  const ir::Graph& graph = context.lowering().graph();
  const ir::Node* const choice = maker(graph, with_nans, "Where");
  const ir::Node* const angle = choice == nullptr ? nullptr : maker(graph, choice->inputs[2], "Atan");
  const ir::Node* const division = angle == nullptr ? nullptr : maker(graph, angle->inputs[0], "Div");
  if (division == nullptr || maker(graph, is_nan, "IsNaN") == nullptr) return false;
  const ValueId y = division->inputs[0], x = division->inputs[1];
  GP_TRY_VOID(emit_atan2(context, y, x, context.type(2).dtype));
  return true;
}

}  // namespace

Result<bool> lower_choice_at_edge(NodeContext& context) {
  const std::optional<ExportedCall> call = parse_exported_call(context.node().exported_from);
  if (!call || context.node().inputs.size() != 3) return false;
  const auto lower = call->target == "aten.sinc.default"    ? lower_sinc
                     : call->target == "aten.xlogy.Tensor"  ? lower_xlogy
                     : call->target == "aten.atan2.default" ? lower_atan2
                                                            : nullptr;
  if (lower == nullptr) return false;
  GP_TRY(const ValueId condition, context.value(0));
  GP_TRY(const ValueId otherwise, context.value(2));
  return lower(context, condition, otherwise);
}

std::vector<HandlerEntry> edge_handlers() {
  return {{"Sqrt", lower_sqrt}, {"Pow", lower_pow}, {"Max", lower_max}, {"Log", lower_log}};
}

}  // namespace graphpipe::frontend
