#include "frontend/gradient_ends.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <string_view>

#include "frontend/exported_call.h"
#include "frontend/merged_readers.h"

namespace graphpipe::frontend {
namespace {

bool is_cast_to_integers(const OnnxNode& node) {
  const Attribute* const to = node.op == "Cast" ? node.find("to") : nullptr;
  const auto dtype = to == nullptr ? std::nullopt : dtype_of_onnx(static_cast<int>(to->i));
  return dtype && !ir::is_floating(*dtype);
}

/// "exp(" in "x * self.w.exp()", not in "x.logsumexp(0)".
bool holds_call(std::string_view line, std::string_view call) {
  const auto ends_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  for (size_t at = line.find(call); at != line.npos; at = line.find(call, at + 1))
    if (at == 0 || !ends_name(line[at - 1])) return true;
  return false;
}

}  // namespace

bool ends_gradients(const OnnxNode& node) {
  constexpr std::array<std::string_view, 19> kOps = {
      "And",  "ArgMax",      "ArgMin",  "Ceil", "Equal", "Floor", "Greater", "GreaterOrEqual", "IsInf", "IsNaN",
      "Less", "LessOrEqual", "NonZero", "Not",  "Or",    "Round", "Shape",   "Sign",           "Size"};
  return std::ranges::find(kOps, node.op) != kOps.end() || is_cast_to_integers(node) || is_detached(node);
}

std::set<std::string> reached_by_gradients(const GraphBody& body) {
  std::set<std::string> reached;
  for (const ValueInfo& output : body.outputs) reached.insert(output.name);
  for (auto node = body.nodes.rbegin(); node != body.nodes.rend(); ++node) {
    const auto is_reached = [&](const std::string& output) { return reached.contains(output); };
    if (ends_gradients(*node) || std::ranges::none_of(node->outputs, is_reached)) continue;
    reached.insert(node->inputs.begin(), node->inputs.end());
  }
  return reached;
}

bool may_have_no_gradient(const GraphBody& body, const std::string& value, std::string_view call) {
  // What gradients reach is found anew, so last.
  return std::ranges::any_of(body.nodes,
                             [&](const OnnxNode& node) {
                               return std::ranges::find(node.inputs, value) != node.inputs.end() &&
                                      !holds_call(line_of(node.code), call);
                             }) &&
         reached_by_gradients(body).contains(value);
}

}  // namespace graphpipe::frontend
