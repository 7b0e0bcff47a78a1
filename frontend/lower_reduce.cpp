// Reductions and operators built on them: axes become an attribute, and the forms without axes are written out.

#include <algorithm>
#include <limits>
#include <numeric>

#include "frontend/exported_call.h"
#include "frontend/lower_selection.h"

namespace graphpipe::frontend {
namespace {

/// The extremum over an empty set: the lowest or highest number; for booleans, false or true.
Result<double> extreme_of_none(NodeContext& context, bool largest) {
  const ir::DType type = context.type(0).dtype;
  if (type == ir::DType::kBool) return largest ? 0 : 1;
  if (ir::is_floating(type)) return largest ? -kInfinity : kInfinity;
  if (type == ir::DType::kInt32)
    return largest ? std::numeric_limits<int32_t>::min() : std::numeric_limits<int32_t>::max();
  return context.problem(Code::kUnsupportedType, "reduces a dimension of size 0 of these integers",
                         "cast to float or to int32 before it");
}

/// Whether PyTorch took the extremum along a dimension by torch.max or torch.min, whose gradient goes to the element
/// that they found first; the operator's, as that of amax, is divided by equal elements.
bool is_found_element(NodeContext& context, const std::vector<int64_t>& axes) {
  const std::optional<ExportedCall> call = parse_exported_call(context.node().exported_from);
  return call && (call->target == "aten.max.dim" || call->target == "aten.min.dim") && axes.size() == 1 &&
         ir::is_floating(context.type(0).dtype) && context.type(0).shape[static_cast<size_t>(axes[0])].is_fixed();
}

Status lower_found_element(NodeContext& context, ir::ValueId input, int64_t axis, bool keeps) {
  const int64_t is_largest = context.node().op == "ReduceMax" ? 1 : 0;
  GP_TRY(const auto found, context.emit("TopK", {input}, {{"axis", axis}, {"k", int64_t{1}}, {"largest", is_largest}}));
  if (keeps) return context.emit_outputs("Identity", {found[0]}, {});
  return context.emit_outputs("Squeeze", {found[0]}, {{"axes", std::vector<int64_t>{axis}}});
}

/// ReduceMax and ReduceMin: also of a dimension of size 0, and of booleans, which are treated as 0 and 1.
Status lower_extreme(NodeContext& context, const std::vector<int64_t>& axes, ir::Attributes attributes) {
  ir::TensorType reduced = context.type(0);
  const bool keeps = attributes.get_int("keepdims", 1) != 0;
  bool of_none = false;
  for (size_t axis = reduced.shape.size(); axis-- > 0;) {
    if (std::ranges::find(axes, static_cast<int64_t>(axis)) == axes.end()) continue;
    of_none = of_none || reduced.shape[axis].factor == 0;
    if (keeps) reduced.shape[axis] = ir::Dim::fixed(1);
    else reduced.shape.erase(reduced.shape.begin() + static_cast<std::ptrdiff_t>(axis));
  }
  const std::string& op = context.node().op;
  if (of_none) {
    GP_TRY(const double value, extreme_of_none(context, op == "ReduceMax"));
    GP_TRY(const ir::ValueId filled, context.filled(value, std::move(reduced)));
    return context.emit_outputs("Identity", {filled}, {});
  }
  GP_TRY(const ir::ValueId input, context.value(0));
  if (is_found_element(context, axes)) return lower_found_element(context, input, axes[0], keeps);
  if (reduced.dtype != ir::DType::kBool) return context.emit_outputs(op, {input}, std::move(attributes));
  GP_TRY(const auto numbers, context.emit("Cast", {input}, {{"to", std::string("i32")}}));
  GP_TRY(const auto extreme, context.emit(op, numbers, std::move(attributes)));
  return context.emit_outputs("Cast", extreme, {{"to", std::string("bool")}});
}

Status lower_reduce(NodeContext& context) {
  std::vector<int64_t> given = context.ints_attribute("axes");
  if (context.has_input(1)) {
    GP_TRY(given, context.integers(1, "axes"));
  }
  GP_TRY(std::vector<int64_t> axes, context.axes(given, context.rank(0)));
  if (axes.empty() && context.int_attribute("noop_with_empty_axes", 0) != 0) {
    // For a single element: its norm, square or logarithm; all others return the element itself.
    const std::string& op = context.node().op;
    const bool is_norm = op == "ReduceL1" || op == "ReduceL2";
    if (!is_norm && op != "ReduceSumSquare" && op != "ReduceLogSum") {
      context.bind_alias();
      return Ok{};
    }
    GP_TRY(const ir::ValueId input, context.value(0));
    if (op == "ReduceSumSquare") return context.emit_outputs("Mul", {input, input}, {});
    return context.emit_outputs(is_norm ? "Abs" : "Log", {input}, {});
  }
  if (axes.empty()) {
    axes.resize(context.rank(0));
    std::iota(axes.begin(), axes.end(), 0);
  }
  ir::Attributes attributes{{"axes", axes}, {"keepdims", context.int_attribute("keepdims", 1)}};
  if (context.node().op == "ReduceMax" || context.node().op == "ReduceMin")
    return lower_extreme(context, axes, std::move(attributes));
  GP_TRY(const ir::ValueId input, context.value(0));
  GP_TRY_VOID(context.emit_outputs(context.node().op, {input}, std::move(attributes)));
  return context.node().op == "ReduceSum" && axes.size() == context.rank(0) ? note_count_of_mask(context)
                                                                            : Status(Ok{});
}

/// x / norm along an axis; a row of zeros stays zero.
Status lower_lp_normalization(NodeContext& context) {
  const int64_t power = context.int_attribute("p", 2);
  if (power != 1 && power != 2) return context.problem(Code::kBadModel, "its p is neither 1 nor 2", "export again");
  GP_TRY(const int64_t axis, context.axis(context.int_attribute("axis", -1), context.rank(0)));
  GP_TRY(const ir::ValueId input, context.value(0));
  GP_TRY(const auto norm, context.emit(power == 1 ? "ReduceL1" : "ReduceL2", {input},
                                       {{"axes", std::vector<int64_t>{axis}}, {"keepdims", int64_t{1}}}));
  GP_TRY(const ir::ValueId zero, context.scalar(0, context.type(0).dtype));
  GP_TRY(const ir::ValueId one, context.scalar(1, context.type(0).dtype));
  GP_TRY(const auto is_zero, context.emit("Equal", {norm[0], zero}, {}));
  GP_TRY(const auto divisor, context.emit("Where", {is_zero[0], one, norm[0]}, {}));
  return context.emit_outputs("Div", {input, divisor[0]}, {});
}

/// ArgMax and ArgMin.
Status lower_arg(NodeContext& context) {
  GP_TRY(const int64_t axis, context.axis(context.int_attribute("axis", 0), context.rank(0)));
  GP_TRY(const ir::ValueId input, context.value(0));
  return context.emit_outputs(context.node().op, {input},
                              {{"axis", axis},
                               {"keepdims", context.int_attribute("keepdims", 1)},
                               {"select_last_index", context.int_attribute("select_last_index", 0)}});
}

}  // namespace

std::vector<HandlerEntry> reduce_handlers() {
  return {{"ReduceSum", lower_reduce},
          {"ReduceMean", lower_reduce},
          {"ReduceMax", lower_reduce},
          {"ReduceMin", lower_reduce},
          {"ReduceProd", lower_reduce},
          {"ReduceL1", lower_reduce},
          {"ReduceL2", lower_reduce},
          {"ReduceLogSum", lower_reduce},
          {"ReduceLogSumExp", lower_reduce},
          {"ReduceSumSquare", lower_reduce},
          {"LpNormalization", lower_lp_normalization, ops::Dependence::kAlongAxis, -1},
          {"ArgMax", lower_arg},
          {"ArgMin", lower_arg}};
}

}  // namespace graphpipe::frontend
