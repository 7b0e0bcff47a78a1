#include "frontend/call_operands.h"

#include <algorithm>
#include <array>
#include <vector>

namespace graphpipe::frontend {
namespace {

/// An operand of the addition of a bias, which has two places.
constexpr int kAnyInput = -1;

struct Entry {
  std::string_view target;  // part of the call's
  std::string_view op;
  int input;
  size_t argument;
};

constexpr std::array<Entry, 28> kEntries = {{
    {"aten.linear.", "MatMul", 1, 1},
    {"aten.linear.", "Gemm", 1, 1},
    {"aten.linear.", "Gemm", 2, 2},
    {"aten.linear.", "Add", kAnyInput, 2},
    {"aten.addmm.", "MatMul", 1, 2},
    {"aten.addmm.", "Gemm", 1, 2},
    {"aten.addmm.", "Gemm", 2, 0},
    {"aten.addmm.", "Add", kAnyInput, 0},
    {"aten.conv", "Conv", 1, 1},
    {"aten.conv", "Conv", 2, 2},
    {"aten.conv", "ConvTranspose", 1, 1},
    {"aten.conv", "ConvTranspose", 2, 2},
    {"aten.embedding.", "Gather", 0, 0},
    {"aten.layer_norm.", "LayerNormalization", 1, 2},
    {"aten.layer_norm.", "LayerNormalization", 2, 3},
    {"aten.rms_norm.", "RMSNormalization", 1, 2},
    {"aten.group_norm.", "GroupNormalization", 1, 2},
    {"aten.group_norm.", "GroupNormalization", 2, 3},
    {"aten.group_norm.", "Mul", kAnyInput, 2},
    {"aten.group_norm.", "Add", kAnyInput, 3},
    {"aten.instance_norm.", "InstanceNormalization", 1, 1},
    {"aten.instance_norm.", "InstanceNormalization", 2, 2},
    {"batch_norm", "BatchNormalization", 1, 1},
    {"batch_norm", "BatchNormalization", 2, 2},
    {"batch_norm", "BatchNormalization", 3, 3},
    {"batch_norm", "BatchNormalization", 4, 4},
    {"aten.prelu.", "PRelu", 1, 1},
    {"aten.index.Tensor", "GatherND", 0, 0},
}};

/// "%i" and "None" of "[None, %i]".
std::vector<std::string_view> entries_of(std::string_view list) {
  std::vector<std::string_view> entries;
  if (!list.starts_with('[') || !list.ends_with(']')) return entries;
  list = list.substr(1, list.size() - 2);
  while (!list.empty()) {
    const size_t end = std::min(list.find(", "), list.size());
    entries.push_back(list.substr(0, end));
    list.remove_prefix(std::min(end + 2, list.size()));
  }
  return entries;
}

/// The exporter moves the axes that are indexed to the front. Nothing where this is more than to turn a matrix.
std::optional<OperandForm> indexed_form(std::string_view indices) {
  const std::vector<std::string_view> entries = entries_of(indices);
  const auto first_open = std::ranges::find(entries, "None");
  if (entries.empty()) return std::nullopt;
  if (std::all_of(first_open, entries.end(), [](std::string_view entry) { return entry == "None"; }))
    return OperandForm::kSame;
  return entries.size() == 2 ? std::optional(OperandForm::kTransposed) : std::nullopt;
}

/// A linear layer multiplies by its weight's transpose, addmm by its argument itself.
OperandForm form_of(const Entry& entry, const OnnxNode& node) {
  // Their vectors stand along the channels.
  if (entry.op == "PRelu" || (entry.target == "aten.group_norm." && entry.op != "GroupNormalization"))
    return OperandForm::kWithAxes;
  const bool is_linear = entry.target == "aten.linear.";
  if (entry.input != 1 || (!is_linear && entry.target != "aten.addmm.")) return OperandForm::kSame;
  const Attribute* transposes = node.op == "Gemm" ? node.find("transB") : nullptr;
  const bool is_transposed_here = transposes != nullptr && transposes->i != 0;
  return is_linear == is_transposed_here ? OperandForm::kSame : OperandForm::kTransposed;
}

}  // namespace

std::optional<CallOperand> call_operand(const ExportedCall& call, const OnnxNode& node, size_t input) {
  const auto entry = std::ranges::find_if(kEntries, [&](const Entry& each) {
    return node.op == each.op && (each.input == kAnyInput || each.input == static_cast<int>(input)) &&
           call.target.find(each.target) != call.target.npos;
  });
  if (entry == kEntries.end()) return std::nullopt;
  if (entry->op == "GatherND") {
    const std::optional<OperandForm> form = indexed_form(call.argument(1));
    return form ? std::optional(CallOperand{.argument = entry->argument, .form = *form}) : std::nullopt;
  }
  return CallOperand{.argument = entry->argument, .form = form_of(*entry, node)};
}

std::optional<size_t> bias_argument(std::string_view target) {
  if (target.starts_with("aten.addmm")) return 0;
  const bool has_bias_last = target.starts_with("aten.linear") || target.starts_with("aten.conv");
  return has_bias_last ? std::optional<size_t>(2) : std::nullopt;
}

std::optional<size_t> weight_argument(std::string_view target) {
  if (target.starts_with("aten.addmm")) return 2;
  return bias_argument(target) ? std::optional<size_t>(1) : std::nullopt;
}

bool is_constant_maker(std::string_view name) {
  constexpr std::array<std::string_view, 13> kMakers = {"_tensor_constant",
                                                        "arange",
                                                        "c_lifted_tensor",
                                                        "empty",
                                                        "eye",
                                                        "full",
                                                        "lift_fresh",
                                                        "lifted_tensor",
                                                        "linspace",
                                                        "new_",
                                                        "ones",
                                                        "scalar_tensor",
                                                        "zeros"};
  if (name.starts_with('%')) name.remove_prefix(1);
  return std::ranges::any_of(kMakers, [&](std::string_view maker) { return name.starts_with(maker); });
}

bool is_product(const OnnxNode& node) {
  return node.op == "MatMul" || node.op == "Gemm" || node.op == "Conv" || node.op == "ConvTranspose";
}

}  // namespace graphpipe::frontend
