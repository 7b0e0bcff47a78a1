#include "support/diagnostic.h"

#include <algorithm>
#include <iterator>

#include "support/check.h"

namespace graphpipe {
namespace {

struct CodeRow {
  Code code;
  std::string_view name;
  int exit_code;
};

// Exit codes: 1 a check failed, 2 usage, 3 input refused, 4 no feasible plan, 5 environment, 6 a peer failed,
// 7 a budget ended with a partial result, 70 a defect of ours. wire/exit_codes.h names the same numbers for the other
// side.
constexpr CodeRow kCodes[] = {
    {Code::kUsage, "usage", 2},
    {Code::kUnreadableFile, "unreadable-file", 3},
    {Code::kMalformedFile, "malformed-file", 3},
    {Code::kLimitExceeded, "limit-exceeded", 3},
    {Code::kUnsafePath, "unsafe-path", 3},
    {Code::kBadModel, "bad-model", 3},
    {Code::kUnsupportedOp, "unsupported-op", 3},
    {Code::kUnsupportedType, "unsupported-type", 3},
    {Code::kUnresolvedShape, "unresolved-shape", 3},
    {Code::kBatchNotFound, "batch-not-found", 3},
    {Code::kBadParameter, "bad-parameter", 3},
    {Code::kUntrainable, "untrainable", 3},
    {Code::kMixesSamples, "mixes-samples", 3},
    {Code::kLostByExport, "lost-by-export", 3},
    {Code::kBadLoss, "bad-loss", 3},
    {Code::kBadCluster, "bad-cluster", 3},
    {Code::kBadProfile, "bad-profile", 3},
    {Code::kBadPlan, "bad-plan", 3},
    {Code::kBadSchedule, "bad-schedule", 3},
    {Code::kNoFeasiblePlan, "no-feasible-plan", 4},
    {Code::kBadData, "bad-data", 3},
    {Code::kEnvironment, "environment", 5},
    {Code::kPeerFailed, "peer-failed", 6},
    {Code::kCheckFailed, "check-failed", 1},
    {Code::kInterrupted, "interrupted", 7},
    {Code::kInternal, "internal", 70},
};

const CodeRow& row_of(Code code) {
  const auto* row = std::ranges::find(kCodes, code, &CodeRow::code);
  GP_CHECK(row != std::end(kCodes));
  return *row;
}

}  // namespace

std::string_view severity_name(Severity severity) {
  switch (severity) {
    case Severity::kError:
      return "error";
    case Severity::kWarning:
      return "warning";
    case Severity::kNote:
      return "note";
  }
  return "error";
}

std::string_view code_name(Code code) { return row_of(code).name; }

std::optional<Code> code_named(std::string_view name) {
  const auto* row = std::ranges::find(kCodes, name, &CodeRow::name);
  return row == std::end(kCodes) ? std::nullopt : std::optional(row->code);
}

int exit_code_of(Code code) { return row_of(code).exit_code; }

std::string to_line(const Diagnostic& diagnostic) {
  std::string line = text(severity_name(diagnostic.severity), "[", code_name(diagnostic.code), "] ");
  if (!diagnostic.origin.empty()) line += quoted(diagnostic.origin) + ": ";
  line += diagnostic.message;
  if (!diagnostic.hint.empty()) line += "; " + diagnostic.hint;
  return line;
}

bool has_error(const Diagnostics& diagnostics) {
  return std::ranges::any_of(diagnostics, [](const Diagnostic& d) { return d.severity == Severity::kError; });
}

}  // namespace graphpipe
