// Operators that are a few others.

#include "frontend/node_context.h"

namespace graphpipe::frontend {
namespace {

/// A constant of input 0's element type, to be broadcast.
Result<ir::ValueId> constant_like(NodeContext& context, double value) {
  const std::string type(ir::dtype_name(context.type(0).dtype));
  GP_TRY(const auto made, context.emit("Full", {}, {{"shape", ir::Shape{}}, {"value", value}, {"to", type}}));
  return made[0];
}

/// x sigmoid(alpha x).
Status lower_swish(NodeContext& context) {
  GP_TRY(const ir::ValueId input, context.value(0));
  ir::ValueId scaled = input;
  if (const double alpha = context.float_attribute("alpha", 1); alpha != 1) {
    GP_TRY(const ir::ValueId factor, constant_like(context, alpha));
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
  GP_TRY(const ir::ValueId exponent, constant_like(context, power));
  GP_TRY(const ir::ValueId root, constant_like(context, 1 / power));
  GP_TRY(const ir::ValueId count, constant_like(context, elements));
  GP_TRY(const auto size, context.emit("Abs", {input}, {}));
  GP_TRY(const auto powers, context.emit("Pow", {size[0], exponent}, {}));
  GP_TRY(const ir::ValueId means, average_over_windows(context, powers[0], std::move(window)));
  GP_TRY(const auto sums, context.emit("Mul", {means, count}, {}));
  return context.emit_outputs("Pow", {sums[0], root}, {});
}

}  // namespace

std::vector<HandlerEntry> composite_handlers() {
  return {{"Swish", lower_swish}, {"Hardmax", lower_hardmax}, {"LpPool", lower_lp_pool}};
}

}  // namespace graphpipe::frontend
