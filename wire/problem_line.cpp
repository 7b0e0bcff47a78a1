#include "wire/problem_line.h"

#include <algorithm>
#include <array>
#include <vector>

namespace graphpipe::wire {
namespace {

constexpr std::string_view kMark = "graphpipe-problem";
constexpr std::array kSeverities = {Severity::kError, Severity::kWarning, Severity::kNote};

/// Without what would end the field or the line.
std::string field(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return c == '\t' || c == '\n' || c == '\r'; }, ' ');
  return text;
}

}  // namespace

std::string problem_line(const Diagnostic& problem) {
  return text(kMark, "\t", code_name(problem.code), "\t", static_cast<int>(problem.severity), "\t",
              field(problem.origin.raw()), "\t", field(problem.message), "\t", field(problem.hint));
}

std::optional<Diagnostic> parse_problem_line(std::string_view line) {
  const std::vector<std::string_view> fields = split(line, "\t");
  if (fields.size() != 6 || fields[0] != kMark) return std::nullopt;
  const std::optional<Code> code = code_named(fields[1]);
  size_t severity = 0;
  if (!code || !read_number(fields[2], severity) || severity >= kSeverities.size()) return std::nullopt;
  return Diagnostic{.code = *code,
                    .severity = kSeverities[severity],
                    .origin = ModelText(std::string(fields[3])),
                    .message = std::string(fields[4]),
                    .hint = std::string(fields[5])};
}

}  // namespace graphpipe::wire
