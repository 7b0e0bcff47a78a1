// Reductions and what is made of them: axes become an attribute, and the forms without axes are spelled out.

#include <numeric>

#include "frontend/node_context.h"

namespace graphpipe::frontend {
namespace {

Status lower_reduce(NodeContext& context) {
  std::vector<int64_t> given = context.ints_attribute("axes");
  if (context.has_input(1)) {
    GP_TRY(given, context.integers(1, "axes"));
  }
  GP_TRY(std::vector<int64_t> axes, context.axes(given, context.rank(0)));
  if (axes.empty() && context.int_attribute("noop_with_empty_axes", 0) != 0 && context.node().op != "ReduceL2" &&
      context.node().op != "ReduceL1") {
    context.bind_alias();
    return Ok{};
  }
  if (axes.empty()) {
    axes.resize(context.rank(0));
    std::iota(axes.begin(), axes.end(), 0);
  }
  GP_TRY(const ir::ValueId input, context.value(0));
  return context.emit_outputs(context.node().op, {input},
                              {{"axes", std::move(axes)}, {"keepdims", context.int_attribute("keepdims", 1)}});
}

/// x / norm along an axis; a row of zeros stays one.
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

/// Clip with constant bounds; open bounds are infinite.
Status lower_clip(NodeContext& context) {
  ir::Attributes attributes;
  if (context.has_input(1)) {
    GP_TRY(const std::vector<double> low, context.reals(1, "lower bound"));
    if (low.size() != 1) return context.problem(Code::kBadModel, "its lower bound is no scalar", "export again");
    attributes.set("min", low[0]);
  }
  if (context.has_input(2)) {
    GP_TRY(const std::vector<double> high, context.reals(2, "upper bound"));
    if (high.size() != 1) return context.problem(Code::kBadModel, "its upper bound is no scalar", "export again");
    attributes.set("max", high[0]);
  }
  GP_TRY(const ir::ValueId input, context.value(0));
  return context.emit_outputs("Clip", {input}, std::move(attributes));
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
          {"LpNormalization", lower_lp_normalization},
          {"ArgMax", lower_arg},
          {"ArgMin", lower_arg},
          {"Clip", lower_clip}};
}

}  // namespace graphpipe::frontend
