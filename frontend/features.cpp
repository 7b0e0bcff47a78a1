#include "frontend/features.h"

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <string_view>

#include "frontend/parameter_names.h"

namespace graphpipe::frontend {
namespace {

/// The first operand's last axis is what these sum over.
bool takes_rows(const OnnxNode& node) {
  constexpr std::array<std::string_view, 4> kOps = {"Gemm", "LayerNormalization", "MatMul", "RMSNormalization"};
  return std::ranges::find(kOps, node.op) != kOps.end();
}

bool joins_rows(const OnnxNode& node, int64_t rank) {
  const Attribute* const axis = node.op == "Concat" ? node.find("axis") : nullptr;
  return axis != nullptr && axis->i != -1 && axis->i != rank - 1;
}

}  // namespace

bool has_features(const GraphBody& body, const Tensor& tensor) {
  std::set<std::string> constants, rows = {tensor.name};
  for (const Tensor& each : body.initializers) constants.insert(each.name);
  const auto is_row = [&](const std::string& input) { return rows.contains(input); };
  for (const OnnxNode& node : body.nodes) {
    if (std::ranges::none_of(node.inputs, is_row)) continue;
    if (joins_rows(node, static_cast<int64_t>(tensor.dims.size()))) return true;
    if (takes_rows(node) && is_row(node.inputs[0])) return true;
    const bool is_sum = node.op == "Add" && std::ranges::all_of(node.inputs, [&](const std::string& input) {
                          return is_row(input) || constants.contains(input);
                        });
    if (is_sum) rows.insert(node.outputs.begin(), node.outputs.end());
  }
  return false;
}

bool is_name_of_token(std::string_view parameter) {
  constexpr std::array<std::string_view, 6> kWords = {"cls", "emb", "latent", "prompt", "quer", "token"};
  const std::string_view member = split_name(parameter).second;
  return std::ranges::any_of(kWords, [&](std::string_view word) { return member.find(word) != member.npos; });
}

}  // namespace graphpipe::frontend
