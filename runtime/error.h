#pragma once
// How the runtime gives up: a RunError carries the diagnostic up to the program's main, which is the one place that
// catches (it catches LibTorch's exceptions too). It never leaves this folder.

#include <exception>
#include <string>

#include "support/diagnostic.h"
#include "support/result.h"
#include "support/text.h"

namespace graphpipe::runtime {

class RunError : public std::exception {
 public:
  explicit RunError(Diagnostic diagnostic) : diagnostic_(std::move(diagnostic)) {}
  const Diagnostic& diagnostic() const { return diagnostic_; }
  const char* what() const noexcept override { return diagnostic_.message.c_str(); }

 private:
  Diagnostic diagnostic_;
};

[[noreturn]] inline void fail(Code code, std::string message, std::string hint) {
  throw RunError(Diagnostic{.code = code,
                            .severity = Severity::kError,
                            .origin = {},
                            .message = std::move(message),
                            .hint = std::move(hint)});
}

/// The value of what support/ returns, or its first problem thrown.
template <typename T>
T value_or_throw(Result<T> result) {
  if (!result.ok()) throw RunError(result.problems().front());
  return std::move(result).value();
}

}  // namespace graphpipe::runtime
