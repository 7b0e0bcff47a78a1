#pragma once
// A Diagnostic tells the user what is wrong with something of theirs: where, what was found, what to do.
// Codes are one table, so each has a stable name, an exit code and at least one test.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "support/text.h"

namespace graphpipe {

/// Problems of one file or schedule that are reported at once; more of them help nobody.
inline constexpr size_t kMaxProblems = 20;

enum class Severity { kError, kWarning, kNote };

enum class Code {
  kUsage,            // the command line is wrong
  kUnreadableFile,   // missing, not a regular file, not permitted
  kMalformedFile,    // not in the format it should be in
  kLimitExceeded,    // larger or deeper than the limit that guards against hostile files
  kUnsafePath,       // a path in a file leaves its folder
  kBadModel,         // valid format, but not a valid ONNX model
  kUnsupportedOp,    // an operator, or a form of it, that has no entry in the dictionary
  kUnsupportedType,  // an element type outside the supported ones
  kUnresolvedShape,  // a shape depends on data or on an unbound symbol
  kBatchNotFound,    // no batch axis, or a constant that bakes it in
  kBadParameter,     // a parameter decision that names nothing or contradicts itself
  kUntrainable,      // nothing to train, or no gradient on a path that needs one
  kMixesSamples,     // the node works on several samples together
  kLostByExport,     // the exporter dropped something that training needs
  kBadLoss,          // the loss names nothing, or its shapes do not fit
  kBadCluster,       // a cluster file with impossible numbers
  kBadProfile,       // a profile file that does not fit the model
  kBadPlan,          // a plan that breaks a rule of docs/semantics.md
  kBadSchedule,      // a schedule that fails its checks
  kNoFeasiblePlan,   // nothing fits: an answer, with the smallest shortfall
  kBadData,          // a data folder that does not fit the model
  kEnvironment,      // compiler, library, port, disk
  kPeerFailed,       // a stage process died or stalled
  kCheckFailed,      // verify, lint or check found a difference
  kInterrupted,      // ended early with a partial result
  kInternal,         // another program of ours has found a defect in itself: ours end the process (support/check.h)
};

struct Diagnostic {
  Code code = Code::kUsage;
  Severity severity = Severity::kError;
  /// The ONNX node, value or field it is about; may be empty.
  ModelText origin;
  /// What was found. Text from a file inside it has been passed through quoted().
  std::string message;
  /// What to do: an action.
  std::string hint;
};

/// All problems found in one go, in the order found.
using Diagnostics = std::vector<Diagnostic>;

/// Stable name, for example "unsupported-op".
std::string_view code_name(Code code);
/// "error", "warning" or "note".
std::string_view severity_name(Severity severity);
/// The code of a name; nothing where there is none.
std::optional<Code> code_named(std::string_view name);
/// The process exit code that an error of this code leads to (see wire/exit_codes.h).
int exit_code_of(Code code);
/// One line: "error[unsupported-op] 'node': message; hint".
std::string to_line(const Diagnostic& diagnostic);
bool has_error(const Diagnostics& diagnostics);

}  // namespace graphpipe
