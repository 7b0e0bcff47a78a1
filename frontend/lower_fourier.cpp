// DFT and STFT: constant lengths, axes and frames become attributes.

#include "frontend/node_context.h"

namespace graphpipe::frontend {
namespace {

using ir::ValueId;

/// A scalar operand; `fallback` if it is absent.
Result<int64_t> scalar_operand(NodeContext& context, size_t input, std::string_view what, int64_t fallback) {
  if (!context.has_input(input)) return fallback;
  GP_TRY(const std::vector<int64_t> given, context.integers(input, what));
  if (given.size() == 1) return given[0];
  return context.problem(Code::kBadModel, text("its ", what, " is no scalar"), "export the model again");
}

Status lower_dft(NodeContext& context) {
  // Opset 17 gives the axis as an attribute, 1 if it is absent.
  GP_TRY(int64_t axis, scalar_operand(context, 2, "axis", context.int_attribute("axis", -2)));
  GP_TRY(axis, context.axis(axis, context.rank(0)));
  const bool inverse = context.int_attribute("inverse", 0) != 0, onesided = context.int_attribute("onesided", 0) != 0;
  const ir::Dim size = context.type(0).shape[static_cast<size_t>(axis)];
  if (!size.is_fixed())
    return context.problem(Code::kMixesSamples, "transforms the batch axis, which mixes the samples",
                           "take another axis, or check that the axis named as the batch is the right one");
  GP_TRY(const int64_t length,
         scalar_operand(context, 1, "length", inverse && onesided ? 2 * (size.factor - 1) : size.factor));
  GP_TRY(const ValueId input, context.value(0));
  return context.emit_outputs(
      "DFT", {input},
      {{"axis", axis}, {"dft_length", length}, {"inverse", int64_t{inverse}}, {"onesided", int64_t{onesided}}});
}

/// The frames of the signal [B, T, 1 or 2], each multiplied by the window and transformed along its own axis.
Status lower_stft(NodeContext& context) {
  const ir::Shape shape = context.type(0).shape;
  if (shape.size() != 2 && shape.size() != 3)
    return context.problem(Code::kBadModel, text("its signal has rank ", shape.size()), "export the model again");
  GP_TRY(const int64_t step, scalar_operand(context, 1, "frame step", 0));
  const bool has_window = context.has_input(2);
  if (has_window && (context.rank(2) != 1 || !context.type(2).shape[0].is_fixed()))
    return context.problem(Code::kBadModel, "its window is no list of fixed length", "export the model again");
  const int64_t whole = has_window ? context.type(2).shape[0].factor : shape[1].is_fixed() ? shape[1].factor : 0;
  GP_TRY(const int64_t length, scalar_operand(context, 3, "frame length", whole));
  if (has_window && whole != length)
    return context.problem(Code::kBadModel, text("its window of ", whole, " elements does not fit frames of ", length),
                           "export the model again");
  GP_TRY(ValueId value, context.value(0));
  const auto emit_one = [&](std::string_view op, std::vector<ValueId> inputs, ir::Attributes attributes) -> Status {
    GP_TRY(const auto made, context.emit(op, std::move(inputs), std::move(attributes)));
    value = made[0];
    return Ok{};
  };
  const std::vector<int64_t> last{static_cast<int64_t>(shape.size())};
  if (shape.size() == 2) GP_TRY_VOID(emit_one("Unsqueeze", {value}, {{"axes", last}}));
  GP_TRY_VOID(emit_one("Frames", {value}, {{"axis", int64_t{1}}, {"length", length}, {"step", step}}));
  if (has_window) {
    GP_TRY(const ValueId window, context.value(2));
    const std::vector<int64_t> second{1};
    GP_TRY(const auto column, context.emit("Unsqueeze", {window}, {{"axes", second}}));
    GP_TRY_VOID(emit_one("Mul", {value, column[0]}, {}));
  }
  return context.emit_outputs("DFT", {value},
                              {{"axis", int64_t{2}},
                               {"dft_length", length},
                               {"inverse", int64_t{0}},
                               {"onesided", context.int_attribute("onesided", 1)}});
}

}  // namespace

std::vector<HandlerEntry> fourier_handlers() { return {{"DFT", lower_dft}, {"STFT", lower_stft}}; }

}  // namespace graphpipe::frontend
