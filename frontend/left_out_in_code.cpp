#include "frontend/left_out_in_code.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "frontend/call_operands.h"
#include "frontend/code_line.h"
#include "frontend/exported_call.h"

namespace graphpipe::frontend {
namespace {

/// "x = x + self.g[i] * y" of the place and the line.
std::string_view line_of(std::string_view code) {
  const size_t end = code.find('\n');
  if (end == code.npos) return {};
  const size_t begin = code.find_first_not_of(" \t\n", end);
  return begin == code.npos ? std::string_view() : code.substr(begin);
}

/// Whether the line may read the elements of this member.
bool takes_elements_of(std::string_view line, const std::string& member) {
  constexpr std::array<std::string_view, 7> kAside = {".device", ".dim(",  ".dtype", ".ndim",
                                                      ".numel(", ".shape", ".size("};
  const std::string name = "self." + member;
  for (size_t at = line.find(name); at != line.npos; at = line.find(name, at + 1)) {
    const std::string_view behind = line.substr(at + name.size());
    if (std::ranges::none_of(kAside, [&](std::string_view each) { return behind.starts_with(each); })) return true;
  }
  return false;
}

/// Whether "gains.0" is that of a list "gains", or the member itself.
bool is_of_member(std::string_view name, std::string_view member) {
  if (!name.starts_with(member)) return false;
  name.remove_prefix(member.size());
  return name.empty() || (name.size() > 1 && name[0] == '.' && name.find_first_not_of("0123456789", 1) == name.npos);
}

}  // namespace

std::optional<LeftOut> left_out_in_code(const GraphBody& body, const ExportSignature& signature,
                                        const std::set<std::string>& parameters,
                                        const std::function<bool(const std::string&)>& is_made) {
  if (parameters.empty()) return std::nullopt;
  const auto is_lost = [&](const std::string& value) {
    return signature.tensor_of(value).empty() && !is_made(value.substr(1)) && !value.starts_with("%sym_") &&
           !is_constant_maker(value);
  };
  for (const OnnxNode& node : body.nodes) {
    const std::string_view line = line_of(node.code);
    if (line.empty() || line.find(" if ") != line.npos) continue;
    const std::optional<ExportedCall> call = parse_exported_call(node.exported_from);
    if (!call || std::ranges::none_of(call->values, is_lost)) continue;
    for (const std::string& member : members_in(line)) {
      const std::string prefix = node.module.empty() ? member : node.module + "." + member;
      const auto named = std::find_if(parameters.lower_bound(prefix), parameters.end(),
                                      [&](const std::string& name) { return is_of_member(name, prefix); });
      if (named != parameters.end() && takes_elements_of(line, member)) return LeftOut{*named, std::string(line)};
    }
  }
  return std::nullopt;
}

}  // namespace graphpipe::frontend
