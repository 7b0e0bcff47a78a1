#include "frontend/results_with_parameters.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "frontend/exported_call.h"
#include "frontend/folding_note.h"

namespace graphpipe::frontend {
namespace {

/// Nodes of two tensors, and what torch.export names their results.
constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kKinds = {{{"Add", "add"},
                                                                                  {"Div", "div"},
                                                                                  {"Max", "maximum"},
                                                                                  {"Min", "minimum"},
                                                                                  {"Mul", "mul"},
                                                                                  {"Pow", "pow"},
                                                                                  {"Sub", "sub"},
                                                                                  {"Where", "where"}}};

/// Empty for others.
std::string_view kind_of_node(std::string_view op) {
  const auto found = std::ranges::find(kKinds, op, [](const auto& each) { return each.first; });
  return found == kKinds.end() ? std::string_view() : found->second;
}

bool is_norm(std::string_view op) {
  constexpr std::array<std::string_view, 4> kNorms = {"GroupNormalization", "InstanceNormalization",
                                                      "LayerNormalization", "RMSNormalization"};
  return std::ranges::find(kNorms, op) != kNorms.end();
}

bool is_activation(std::string_view kind) {
  constexpr std::array<std::string_view, 14> kActivations = {
      "celu", "elu",  "gelu", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu",
      "mish", "relu", "selu", "sigmoid",     "silu",      "softplus", "tanh"};
  return std::ranges::find(kActivations, kind) != kActivations.end();
}

bool reads_of(const OnnxNode& node, const std::set<std::string>& values) {
  return std::ranges::any_of(node.inputs, [&](const std::string& input) { return values.contains(input); });
}

}  // namespace

ResultsByKind results_with_parameters(const std::vector<OnnxNode>& nodes, const std::set<std::string>& of_parameters) {
  ResultsByKind results;
  std::set<std::string> activated;  // what activations may be of, and parts of theirs
  for (const OnnxNode& node : nodes) {
    const std::string_view kind = kind_of_node(node.op);
    const bool is_with_parameter = (!kind.empty() || is_norm(node.op)) && reads_of(node, of_parameters);
    if (!is_with_parameter && !reads_of(node, activated)) continue;
    const std::optional<ExportedCall> call = parse_exported_call(node.exported_from);
    const std::string result = call ? call->result : std::string();
    const std::string_view of_call = call_of_value(result);
    for (const std::string& output : node.outputs) {
      if (is_with_parameter && !kind.empty()) results[std::string(kind)].emplace(output, result);
      else if (is_activation(of_call)) results[std::string(of_call)].emplace(output, result);
      // Not the sum of a linear layer and its bias: two that began alike had equal weights.
      if (is_with_parameter ? kind.empty() || of_call == kind : is_activation(of_call)) activated.insert(output);
    }
  }
  return results;
}

}  // namespace graphpipe::frontend
