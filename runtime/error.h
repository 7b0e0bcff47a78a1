#pragma once
// How the runtime reports a fatal error: a RunError carries the diagnostics up to the program's main, the only place
// that catches (it catches LibTorch's exceptions too). It never leaves this folder.

#include <exception>
#include <string>
#include <utility>

#include "support/result.h"
#include "support/text.h"

namespace graphpipe::runtime {

class RunError : public std::exception {
 public:
  explicit RunError(Diagnostic diagnostic) : RunError(Diagnostics{std::move(diagnostic)}) {}
  /// Needs: at least one.
  explicit RunError(Diagnostics diagnostics) : diagnostics_(std::move(diagnostics)) {
    const Diagnostic& first = diagnostics_.front();
    what_ = (first.origin.empty() ? "" : quoted(first.origin) + ": ") + first.message;
  }
  const Diagnostics& diagnostics() const { return diagnostics_; }
  /// The first one: it decides how the program ends.
  const Diagnostic& diagnostic() const { return diagnostics_.front(); }
  /// The first one without its hint: what other ranks quote.
  const char* what() const noexcept override { return what_.c_str(); }

 private:
  Diagnostics diagnostics_;
  std::string what_;
};

/// An error that every rank encounters independently, such as the loss of the feeder: rank 0 reports it, on the others
/// it is a note.
class SharedRunError : public RunError {
 public:
  using RunError::RunError;
};

[[noreturn]] inline void fail(Code code, std::string message, std::string hint) {
  throw RunError(Diagnostic{.code = code,
                            .severity = Severity::kError,
                            .origin = {},
                            .message = std::move(message),
                            .hint = std::move(hint)});
}

/// The value of a Result from support/ or wire/; throws its problems if it has none.
template <typename T>
T value_or_throw(Result<T> result) {
  if (!result.ok()) throw RunError(result.problems());
  return std::move(result).value();
}

}  // namespace graphpipe::runtime
