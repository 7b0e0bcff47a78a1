#include "frontend/exported_call.h"

#include <algorithm>
#include <utility>

namespace graphpipe::frontend {
namespace {

constexpr std::string_view kTarget = "call_function[target=torch.ops.", kArguments = "](args = (",
                           kKeywords = "), kwargs = {";

/// Up to the bracket that closes the list, split at its top-level commas.
std::vector<std::string> split_arguments(std::string_view text) {
  std::vector<std::string> arguments;
  std::string argument;
  int depth = 0;
  for (const char c : text) {
    depth += c == '(' || c == '[' || c == '{' ? 1 : c == ')' || c == ']' || c == '}' ? -1 : 0;
    if (depth < 0) break;
    if (c == ',' && depth == 0) arguments.push_back(std::exchange(argument, {}));
    else if (c != ' ' || !argument.empty()) argument += c;
  }
  if (!argument.empty()) arguments.push_back(std::move(argument));
  return arguments;
}

/// "%x" and "%p_weight" of "%x, [%p_weight, 2]".
std::vector<std::string> values_in(std::string_view text) {
  std::vector<std::string> values;
  for (size_t at = text.find('%'); at != text.npos; at = text.find('%', at + 1)) {
    const size_t end = text.find_first_of(" ,)]}", at);
    values.emplace_back(text.substr(at, end - at));
  }
  return values;
}

}  // namespace

std::optional<ExportedCall> parse_exported_call(std::string_view text) {
  const size_t target = text.find(kTarget);
  if (target == text.npos) return std::nullopt;
  const size_t name_end = text.starts_with('%') ? text.find(" :") : text.npos;
  std::string result(name_end < target ? text.substr(1, name_end - 1) : std::string_view());
  text.remove_prefix(target + kTarget.size());
  const size_t arguments = text.find(kArguments);
  if (arguments == text.npos) return std::nullopt;
  ExportedCall call{.result = std::move(result),
                    .target = std::string(text.substr(0, arguments)),
                    .arguments = split_arguments(text.substr(arguments + kArguments.size())),
                    .keywords = {},
                    .values = values_in(text.substr(arguments))};
  const size_t keywords = text.find(kKeywords, arguments);
  if (keywords != text.npos) call.keywords = split_arguments(text.substr(keywords + kKeywords.size()));
  return call;
}

bool is_detached(const OnnxNode& node) {
  const std::optional<ExportedCall> call = parse_exported_call(node.exported_from);
  return call && call->target == "aten.detach.default";
}

bool tells_more_than_its_node(std::string_view metadata) {
  constexpr std::string_view kTelling[] = {"aten.embedding.default](args = (", "aten.scatter_reduce.two](args = (",
                                           "aten.detach.default](args = (",
                                           "aten.cross_entropy_loss.default](args = ("};
  // torch.export names the inputs that stand for parameters so.
  const bool takes_parameters = metadata.find(kTarget) != metadata.npos && metadata.find("%p_") != metadata.npos;
  return takes_parameters ||
         std::ranges::any_of(kTelling, [&](std::string_view call) { return metadata.find(call) != metadata.npos; });
}

}  // namespace graphpipe::frontend
