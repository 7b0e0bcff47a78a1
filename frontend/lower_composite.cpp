// Operators that are compositions of a few others.

#include "frontend/node_context.h"

namespace graphpipe::frontend {
namespace {

/// x sigmoid(alpha x).
Status lower_swish(NodeContext& context) {
  GP_TRY(const ir::ValueId input, context.value(0));
  ir::ValueId scaled = input;
  if (const double alpha = context.float_attribute("alpha", 1); alpha != 1) {
    GP_TRY(const ir::ValueId factor, context.scalar(alpha, context.type(0).dtype));
    GP_TRY(const auto product, context.emit("Mul", {input, factor}, {}));
    scaled = product[0];
  }
  GP_TRY(const auto gate, context.emit("Sigmoid", {scaled}, {}));
  return context.emit_outputs("Mul", {input, gate[0]}, {});
}

/// 1 at the first of the largest elements along an axis, 0 elsewhere.
Status lower_hardmax(NodeContext& context) {
  GP_TRY(const int64_t axis, context.axis(context.int_attribute("axis", -1), context.rank(0)));
  const ir::Dim size = context.type(0).shape[static_cast<size_t>(axis)];
  if (!size.is_fixed())
    return context.problem(Code::kMixesSamples, "compares the samples of a batch", "take another axis");
  GP_TRY(const ir::ValueId input, context.value(0));
  GP_TRY(
      const auto largest,
      context.emit("ArgMax", {input}, {{"axis", axis}, {"keepdims", int64_t{0}}, {"select_last_index", int64_t{0}}}));
  return context.emit_outputs("OneHot", {largest[0]},
                              {{"axis", axis},
                               {"depth", size.factor},
                               {"off", 0.0},
                               {"on", 1.0},
                               {"to", std::string(ir::dtype_name(context.type(0).dtype))}});
}

/// The p-th root of the sum of |x|^p over a window: the mean of the powers, times the window's elements.
Status lower_lp_pool(NodeContext& context) {
  if (context.int_attribute("ceil_mode", 0) != 0)
    return context.problem(Code::kUnsupportedOp, "windows that end beyond the pads are not supported",
                           "use ceil_mode 0 with larger pads");
  const auto power = static_cast<double>(context.int_attribute("p", 2));
  if (!(power >= 1)) return context.problem(Code::kBadModel, "its p is below 1", "export the model again");
  GP_TRY(ir::Attributes window, pool_attributes(context));
  double elements = 1;
  for (const int64_t size : window.get_ints("kernel_shape")) elements *= static_cast<double>(size);
  window.set("ceil_mode", int64_t{0});
  window.set("count_include_pad", int64_t{1});
  GP_TRY(const ir::ValueId input, context.value(0));
  GP_TRY(const ir::ValueId exponent, context.scalar(power, context.type(0).dtype));
  GP_TRY(const ir::ValueId root, context.scalar(1 / power, context.type(0).dtype));
  GP_TRY(const ir::ValueId count, context.scalar(elements, context.type(0).dtype));
  GP_TRY(const auto size, context.emit("Abs", {input}, {}));
  GP_TRY(const auto powers, context.emit("Pow", {size[0], exponent}, {}));
  GP_TRY(const ir::ValueId means, average_over_windows(context, powers[0], std::move(window)));
  GP_TRY(const auto sums, context.emit("Mul", {means, count}, {}));
  // The root has an infinite derivative at zero, which times the zero derivatives within its window would be NaN.
  GP_TRY(const ir::ValueId zero, context.scalar(0, context.type(0).dtype));
  GP_TRY(const ir::ValueId one, context.scalar(1, context.type(0).dtype));
  GP_TRY(const auto is_zero, context.emit("Equal", {sums[0], zero}, {}));
  GP_TRY(const auto above_zero, context.emit("Where", {is_zero[0], one, sums[0]}, {}));
  GP_TRY(const auto roots, context.emit("Pow", {above_zero[0], root}, {}));
  return context.emit_outputs("Where", {is_zero[0], zero, roots[0]}, {});
}

}  // namespace

std::vector<HandlerEntry> composite_handlers() {
  return {{"Swish", lower_swish, ops::Dependence::kElement},
          {"Hardmax", lower_hardmax, ops::Dependence::kAlongAxis, -1},
          {"LpPool", lower_lp_pool}};
}

}  // namespace graphpipe::frontend
