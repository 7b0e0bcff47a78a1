#include "frontend/exported_call.h"

#include <algorithm>
#include <utility>

#include "frontend/folding_note.h"

namespace graphpipe::frontend {
namespace {

constexpr std::string_view kTarget = "call_function[target=torch.ops.", kArguments = "](args = (",
                           kKeywords = "), kwargs = {";

/// Calls of torch are shorter; what takes more is no call.
constexpr size_t kMaxText = size_t{64} << 10;

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
  for (size_t at = text.find('%'); at != text.npos; at = text.find('%', at)) {
    const size_t end = std::min(text.find_first_of(" ,)]}", at), text.size());
    values.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return values;
}

constexpr std::string_view kFrame = "File \"";
constexpr size_t kMaxCode = 1024;

/// The lines of these frames that name two members of their module or more: they may pass one to the code of another.
std::string passed_members(std::string_view frames) {
  constexpr std::string_view kSelf = "self.";
  std::string lines;
  while (!frames.empty() && lines.size() < kMaxCode) {
    const std::string_view line = frames.substr(0, frames.find('\n'));
    frames.remove_prefix(std::min(line.size() + 1, frames.size()));
    if (line.size() > kMaxCode || line.find(kFrame) != line.npos || line.find(kSelf) == line.rfind(kSelf)) continue;
    lines.append(line).append("\n");
  }
  return lines;
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

std::string place_of_call(std::string_view key, std::string_view text) {
  if (key == kScopes) {
    const std::vector<std::string> scopes = parse_names(text);  // the last is the call's own
    return scopes.size() < 2 ? std::string() : scopes[scopes.size() - 2];
  }
  const size_t frame = key == kStackTrace ? text.rfind(kFrame) : text.npos;
  if (frame == text.npos) return {};
  return passed_members(text.substr(0, frame)).append(text.substr(frame, kMaxCode));
}

std::string_view callers_in(std::string_view kept) { return kept.substr(0, std::min(kept.rfind(kFrame), kept.size())); }

std::string_view code_in(std::string_view kept) { return kept.substr(callers_in(kept).size()); }

bool may_be_exported_call(std::string_view metadata) {
  return metadata.size() <= kMaxText && metadata.find(kTarget) != metadata.npos;
}

}  // namespace graphpipe::frontend
