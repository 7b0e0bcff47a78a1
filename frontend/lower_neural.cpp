// Layers: convolutions (and pools, lower_pool.cpp) get explicit pads; BatchNormalization and Dropout get the mode that
// the user chose. A loss that the file holds only in part is refused.

#include <algorithm>
#include <tuple>

#include "frontend/exported_call.h"
#include "frontend/node_context.h"
#include "frontend/restore_dropout.h"

namespace graphpipe::frontend {
namespace {

using ir::Dim;

/// Of pads, and of what they pad.
constexpr int64_t kMaxPads = int64_t{1} << 40;

/// Kernel, strides, dilations and pads of a sliding window, all explicit.
struct Window {
  std::vector<int64_t> kernel, strides, dilations, pads;
};

/// pads = begin of each axis, then end of each axis, following SAME_UPPER or SAME_LOWER.
Status same_pads(NodeContext& context, Window& window, bool upper) {
  const size_t axes = window.kernel.size();
  window.pads.assign(2 * axes, 0);
  for (size_t i = 0; i < axes; ++i) {
    const Dim size = context.type(0).shape[i + 2];
    if (!size.is_fixed()) return context.problem(Code::kUnresolvedShape, "pads an unknown size", "use explicit pads");
    const int64_t out = (size.factor + window.strides[i] - 1) / window.strides[i];
    const int64_t reach = (window.kernel[i] - 1) * window.dilations[i] + 1;
    const int64_t total = std::max<int64_t>(0, (out - 1) * window.strides[i] + reach - size.factor);
    window.pads[i] = upper ? total / 2 : total - total / 2;
    window.pads[i + axes] = total - window.pads[i];
  }
  return Ok{};
}

Result<Window> window_of(NodeContext& context, std::vector<int64_t> kernel) {
  Window window;
  const size_t axes = context.rank(0) < 2 ? 0 : context.rank(0) - 2;
  window.kernel = context.ints_attribute("kernel_shape", std::move(kernel));
  window.strides = context.ints_attribute("strides", std::vector<int64_t>(axes, 1));
  window.dilations = context.ints_attribute("dilations", std::vector<int64_t>(axes, 1));
  window.pads = context.ints_attribute("pads", std::vector<int64_t>(2 * axes, 0));
  const auto sane = [](int64_t v) { return v >= 1 && v <= (int64_t{1} << 24); };
  const bool positive = std::all_of(window.kernel.begin(), window.kernel.end(), sane) &&
                        std::all_of(window.strides.begin(), window.strides.end(), sane) &&
                        std::all_of(window.dilations.begin(), window.dilations.end(), sane);
  if (axes == 0 || window.kernel.size() != axes || window.strides.size() != axes || window.dilations.size() != axes ||
      window.pads.size() != 2 * axes || !positive)
    return context.problem(Code::kBadModel, "its kernel, strides, dilations or pads do not fit its input",
                           "export the model again");
  const std::string automatic = context.string_attribute("auto_pad", "NOTSET");
  if (automatic == "VALID") window.pads.assign(2 * axes, 0);
  if (automatic == "SAME_UPPER" || automatic == "SAME_LOWER")
    GP_TRY_VOID(same_pads(context, window, automatic == "SAME_UPPER"));
  for (const int64_t pad : window.pads)
    if (pad < 0 || pad > kMaxPads)
      return context.problem(Code::kBadModel, text("has a pad of ", pad), "export the model again");
  return window;
}

ir::Attributes attributes_of(const Window& window) {
  return {{"kernel_shape", window.kernel},
          {"strides", window.strides},
          {"dilations", window.dilations},
          {"pads", window.pads}};
}

std::vector<int64_t> spatial_dims(const ir::Shape& weight) {
  std::vector<int64_t> dims;
  for (size_t i = 2; i < weight.size(); ++i) dims.push_back(weight[i].factor);
  return dims;
}

/// The raw exporter gives a convolution without bias a computed bias of zeros. A parameter that starts at zero is not
/// such a bias: it trains.
bool is_zero_constant(NodeContext& context, size_t i) {
  const Known* operand = context.known(i);
  return operand != nullptr && !context.input(i).leaf && operand->uniform && operand->elements[0].factor() == 0;
}

/// Data, weight, and the bias unless it is all zero.
Result<std::vector<ir::ValueId>> convolved_values(NodeContext& context) {
  GP_TRY(const ir::ValueId data, context.value(0));
  GP_TRY(const ir::ValueId weight, context.value(1));
  std::vector<ir::ValueId> inputs = {data, weight};
  if (context.has_input(2) && !is_zero_constant(context, 2)) {
    GP_TRY(const ir::ValueId bias, context.value(2));
    inputs.push_back(bias);
  }
  return inputs;
}

Status lower_conv(NodeContext& context) {
  GP_TRY(ir::Attributes attributes, convolution_attributes(context, context.type(1).shape));
  GP_TRY(std::vector<ir::ValueId> inputs, convolved_values(context));
  return context.emit_outputs("Conv", std::move(inputs), std::move(attributes));
}

/// Pads that give a transposed convolution its output_shape, or for auto_pad SAME, stride times the input size. The
/// remainder at the end is output_padding.
Status transposed_pads(NodeContext& context, Window& window, std::vector<int64_t>& output_padding) {
  const std::string automatic = context.string_attribute("auto_pad", "NOTSET");
  const bool same = automatic == "SAME_UPPER" || automatic == "SAME_LOWER";
  const size_t axes = window.kernel.size();
  std::vector<int64_t> wanted = context.ints_attribute("output_shape");
  if (!same && wanted.empty()) return Ok{};
  // Old exporters include the samples and channels.
  if (wanted.size() == axes + 2) wanted.erase(wanted.begin(), wanted.begin() + 2);
  for (size_t i = 0; i < axes; ++i) {
    const Dim size = context.type(0).shape[i + 2];
    if (!size.is_fixed()) return context.problem(Code::kUnresolvedShape, "pads an unknown size", "use explicit pads");
    const bool is_too_long = size.factor > kMaxPads / window.strides[i];
    if (context.node().find("output_shape") == nullptr && !is_too_long)
      wanted.push_back(size.factor * window.strides[i]);
    if (is_too_long || wanted.size() != (context.node().find("output_shape") == nullptr ? i + 1 : axes) ||
        output_padding.size() != axes || wanted[i] < 1 || wanted[i] > kMaxPads || output_padding[i] < 0 ||
        output_padding[i] > kMaxPads)
      return context.problem(Code::kBadModel, "its output_shape or output_padding does not fit its input",
                             "export the model again");
    const int64_t whole =
        window.strides[i] * (size.factor - 1) + output_padding[i] + (window.kernel[i] - 1) * window.dilations[i] + 1;
    const int64_t total = whole - wanted[i];
    if (!same && total == window.pads[i] + window.pads[i + axes]) continue;
    if (!same && (window.pads[i] != 0 || window.pads[i + axes] != 0))
      return context.problem(Code::kBadModel, "its pads and its output_shape contradict each other",
                             "give one of them");
    const int64_t smaller = total >= 0 ? total / 2 : -((1 - total) / 2);
    const int64_t begin = automatic == "SAME_UPPER" ? smaller : total - smaller;
    if (begin < 0)
      return context.problem(
          Code::kUnsupportedOp,
          text(same ? text("auto_pad=", automatic, ": ") : "its output_shape: ", wanted[i], " results of axis ", i + 2,
               " are wanted, and the window gives ", whole, ", so they begin before the first"),
          "use a kernel as large as the stride, or pad the result with an operator of its own");
    window.pads[i] = begin;
    window.pads[i + axes] = std::max<int64_t>(total - begin, 0);
    output_padding[i] += std::max<int64_t>(begin - total, 0);
  }
  return Ok{};
}

Status lower_conv_transpose(NodeContext& context) {
  GP_TRY(Window window, window_of(context, spatial_dims(context.type(1).shape)));
  std::vector<int64_t> output_padding =
      context.ints_attribute("output_padding", std::vector<int64_t>(window.kernel.size(), 0));
  GP_TRY_VOID(transposed_pads(context, window, output_padding));
  ir::Attributes attributes = attributes_of(window);
  attributes.set("group", context.int_attribute("group", 1));
  attributes.set("output_padding", std::move(output_padding));
  GP_TRY(std::vector<ir::ValueId> inputs, convolved_values(context));
  return context.emit_outputs("ConvTranspose", std::move(inputs), std::move(attributes));
}

/// Running statistics are tensors of the file; a mean that the graph computes is weight standardisation, whose mode the
/// user does not control.
bool has_running_statistics(NodeContext& context) {
  return context.input(3).data.has_value() && context.input(4).data.has_value();
}

/// Statistics that the graph computes have gradients, unlike running ones: the formula is written out.
Status normalize_by_computed(NodeContext& context) {
  ir::Shape channels(std::max<size_t>(context.rank(0), 2) - 1, Dim::fixed(1));
  channels[0] = context.type(1).shape.empty() ? Dim::fixed(1) : context.type(1).shape[0];
  std::vector<ir::ValueId> of_channels;
  for (size_t i = 1; i < 5; ++i) {
    GP_TRY(const ir::ValueId value, context.value(i));
    GP_TRY(const ir::ValueId spread, context.emit_one("Reshape", {value}, {{"shape", channels}}));
    of_channels.push_back(spread);
  }
  const auto [scale, bias, mean, variance] = std::tie(of_channels[0], of_channels[1], of_channels[2], of_channels[3]);
  GP_TRY(const ir::ValueId x, context.value(0));
  GP_TRY(const ir::ValueId epsilon, context.scalar(context.float_attribute("epsilon", 1e-5), context.type(4).dtype));
  GP_TRY(const ir::ValueId centred, context.emit_one("Sub", {x, mean}));
  GP_TRY(const ir::ValueId safe, context.emit_one("Add", {variance, epsilon}));
  GP_TRY(const ir::ValueId deviation, context.emit_one("Sqrt", {safe}));
  GP_TRY(const ir::ValueId normal, context.emit_one("Div", {centred, deviation}));
  GP_TRY(const ir::ValueId scaled, context.emit_one("Mul", {normal, scale}));
  return context.emit_outputs("Add", {scaled, bias}, {});
}

bool is_computed(NodeContext& context, size_t i) { return !context.input(i).data && !context.input(i).known; }

Status lower_batch_norm(NodeContext& context) {
  const bool file_trains = context.int_attribute("training_mode", 0) != 0;
  if (!file_trains && is_computed(context, 3) && is_computed(context, 4)) return normalize_by_computed(context);
  bool train = file_trains;
  if (has_running_statistics(context)) {
    const ir::BatchNormMode mode = context.lowering().request().spec.batch_norm;
    if (mode != ir::BatchNormMode::kFile) train = mode != ir::BatchNormMode::kEval;
  }
  // ONNX updates the running variance with the population variance, PyTorch with the unbiased one.
  const bool torch = context.lowering().from_torch();
  ir::Attributes attributes{{"epsilon", context.float_attribute("epsilon", 1e-5)},
                            {"momentum", context.float_attribute("momentum", 0.9)},
                            {"training_mode", int64_t{train ? 1 : 0}}};
  if (train) attributes.set("unbiased_variance", int64_t{torch ? 1 : 0});
  GP_TRY(std::vector<ir::ValueId> inputs, context.all_values());
  GP_TRY(const std::vector<ir::ValueId> results, context.emit("BatchNormalization", std::move(inputs), attributes));
  context.bind(0, results[0]);
  // Outputs 1 and 2 are the updated statistics, which most files do not read. The node updates its inputs in place,
  // which are then the model's outputs; a node that reads them could run before the update.
  for (size_t i = 1; i < 3; ++i) {
    if (!context.is_read(i)) continue;
    if (!has_running_statistics(context) || context.lowering().is_read_by_nodes(context.node().outputs[i]))
      return context.problem(Code::kUnsupportedOp, "the updated statistics are read as values",
                             "drop what reads them: they are saved as buffers");
    context.lowering().bind_alias(context.node().outputs[i], context.node().inputs[i + 2]);
  }
  return Ok{};
}

/// The result of a Dropout of ones serves as both the mask and the factor of x.
Status dropout_with_mask(NodeContext& context, double ratio) {
  const ir::TensorType type = context.type(0);
  if (ratio == 0) {
    context.bind_alias();
    GP_TRY(const ir::ValueId all, context.filled(1, {ir::DType::kBool, type.shape}));
    context.bind(1, all);
    return Ok{};
  }
  GP_TRY(const ir::ValueId input, context.value(0));
  GP_TRY(const ir::ValueId ones, context.filled(1, type));
  GP_TRY(const auto factor, context.emit("Dropout", {ones}, {{"ratio", ratio}}));
  GP_TRY(const auto result, context.emit("Mul", {input, factor[0]}, {}));
  GP_TRY(const auto mask, context.emit("Cast", factor, {{"to", std::string("bool")}}));
  context.bind(0, result[0]);
  context.bind(1, mask[0]);
  return Ok{};
}

Status lower_dropout(NodeContext& context) {
  const bool drops = context.lowering().request().spec.dropout;
  double ratio = 0.5;
  if (context.has_input(1)) {
    GP_TRY(const std::vector<double> given, context.reals(1, "ratio"));
    if (!given.empty()) ratio = given[0];
  }
  // The exporter writes that of attention without its mode; a module that evaluates passes it no probability.
  bool file_drops = attention_dropout(context.node().exported_from) > 0;
  if (context.has_input(2)) {
    GP_TRY(const std::vector<double> given, context.reals(2, "mode"));
    file_drops = !given.empty() && given[0] != 0;
  }
  if (!(ratio >= 0 && ratio < 1)) return context.problem(Code::kBadModel, "its ratio is not in [0, 1)", "correct it");
  if (drops && !file_drops && ratio > 0)
    context.note(Severity::kNote, Code::kLostByExport,
                 text("the file switches it off, the exporter may have lost its mode; it drops with ratio ", ratio),
                 "--dropout off leaves it off");
  if (!drops && file_drops && ratio > 0)
    context.note(Severity::kNote, Code::kLostByExport,
                 text("the file drops with ratio ", ratio, ", which is switched off"), "--dropout on trains with it");
  if (context.is_read(1)) return dropout_with_mask(context, drops ? ratio : 0);
  if (!drops || ratio == 0) {
    context.bind_alias();
    return Ok{};
  }
  GP_TRY(const ir::ValueId input, context.value(0));
  return context.emit_outputs("Dropout", {input}, {{"ratio", ratio}});
}

/// For F.cross_entropy(label_smoothing=...), which ONNX cannot express and exporters leave out.
Status lower_cross_entropy(NodeContext& context) {
  const std::optional<ExportedCall> call = parse_exported_call(context.node().exported_from);
  double smoothing = 0;
  if (call && call->target == "aten.cross_entropy_loss.default" && read_number(call->argument(5), smoothing) &&
      smoothing != 0) {
    const std::string what = text("the module smooths its labels (label_smoothing=", smoothing,
                                  "), which the file leaves out: it trains another loss");
    const char* const cure =
        "export the module with graphpipe.export, which writes the smoothing, compute the loss from log_softmax in the "
        "module, or leave label_smoothing out; --accept trains the file's loss";
    if (refuses_losses(context.lowering().request().spec)) return context.problem(Code::kLostByExport, what, cure);
    context.note(Severity::kWarning, Code::kLostByExport, what, cure);
  }
  return lower_plain(context);
}

}  // namespace

Result<ir::Attributes> convolution_attributes(NodeContext& context, const ir::Shape& weight) {
  GP_TRY(const Window window, window_of(context, spatial_dims(weight)));
  ir::Attributes attributes = attributes_of(window);
  attributes.set("group", context.int_attribute("group", 1));
  return attributes;
}

Result<ir::Attributes> pool_attributes(NodeContext& context) {
  GP_TRY(const Window window, window_of(context, {}));
  return attributes_of(window);
}

std::vector<HandlerEntry> neural_handlers() {
  return {{"Conv", lower_conv},
          {"ConvTranspose", lower_conv_transpose},
          {"BatchNormalization", lower_batch_norm},
          {"Dropout", lower_dropout},
          {"SoftmaxCrossEntropyLoss", lower_cross_entropy}};
}

}  // namespace graphpipe::frontend
