#include "frontend/left_out_in_code.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "frontend/call_operands.h"
#include "frontend/exported_call.h"
#include "frontend/merged_readers.h"
#include "support/text.h"

namespace graphpipe::frontend {
namespace {

/// "x = x + self.g[i] * y"
std::string_view without_indent(std::string_view line) {
  const size_t begin = line.find_first_not_of(" \t\n");
  return begin == line.npos ? std::string_view() : line.substr(begin);
}

/// The parameters by what a line of code calls them: "gains.0", and "gains" for the first one of that list.
std::map<std::string, std::string> by_member(const std::set<std::string>& parameters) {
  std::map<std::string, std::string> members;
  for (const std::string& name : parameters) {
    members.insert_or_assign(name, name);
    const size_t dot = name.rfind('.');
    const bool is_of_list = dot != name.npos && name.find_first_not_of("0123456789", dot + 1) == name.npos;
    if (is_of_list) members.emplace(name.substr(0, dot), name);
  }
  return members;
}

/// Whether what stands around a member takes its size or type alone: "len(" and ")", or "[0].shape".
bool is_aside(std::string_view before, std::string_view behind) {
  constexpr std::array<std::string_view, 9> kBehind = {".device", ".dim(",  ".dtype",         ".ndim", ".new_",
                                                       ".numel(", ".shape", ".requires_grad", ".size("};
  constexpr std::array<std::string_view, 3> kBefore = {"_as(", "_like(", "len("};
  while (behind.starts_with('[')) {
    const size_t end = behind.find(']');
    if (end == behind.npos) break;
    behind.remove_prefix(end + 1);
  }
  return std::ranges::any_of(kBehind, [&](std::string_view each) { return behind.starts_with(each); }) ||
         std::ranges::any_of(kBefore, [&](std::string_view each) { return before.ends_with(each); });
}

/// The first of these whose elements the line of this module may read; null where it reads none.
const std::string* parameter_in(std::string_view line, const std::string& module,
                                const std::map<std::string, std::string>& members) {
  constexpr std::string_view kSelf = "self.";
  constexpr std::string_view kOfNames = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
  constexpr size_t kLongestName = 1024;
  for (size_t at = line.find(kSelf); at != line.npos; at = line.find(kSelf, at + 1)) {
    const size_t begin = at + kSelf.size();
    for (size_t end = begin; end - begin <= kLongestName; ++end) {
      end = std::min(line.find_first_not_of(kOfNames, end), line.size());
      const std::string member(line.substr(begin, std::min(end - begin, kLongestName)));
      const auto found = members.find(module.empty() ? member : module + "." + member);
      if (found != members.end() && !is_aside(line.substr(0, at), line.substr(end))) return &found->second;
      if (end == line.size() || line[end] != '.') break;
    }
  }
  return nullptr;
}

/// "%getitem_1": a result of an operator that has several, which nodes know by the name of the operator.
bool is_one_of_several(std::string_view value) { return value.starts_with("%getitem"); }

}  // namespace

std::optional<LeftOut> left_out_in_code(const GraphBody& body, const ExportSignature& signature,
                                        const std::set<std::string>& parameters,
                                        const std::function<bool(const std::string&)>& is_made) {
  if (parameters.empty()) return std::nullopt;
  const std::map<std::string, std::string> members = by_member(parameters);
  const auto is_lost = [&](const std::string& value) {
    return signature.tensor_of(value).empty() && !is_made(value.substr(1)) && !value.starts_with("%sym_") &&
           !is_constant_maker(value) && !is_one_of_several(value);
  };
  for (const OnnxNode& node : body.nodes) {
    const std::string_view line = without_indent(line_of(node.code));
    if (line.empty() || line.find(" if ") != line.npos) continue;
    const std::string* const named = parameter_in(line, node.module, members);
    if (named == nullptr) continue;
    const std::optional<ExportedCall> call = parse_exported_call(node.exported_from);
    if (call && std::ranges::any_of(call->values, is_lost))
      return LeftOut{*named, text("the exporter's optimiser has left out what ", quoted(ModelText(std::string(line))),
                                  " computes with it")};
  }
  return std::nullopt;
}

}  // namespace graphpipe::frontend
