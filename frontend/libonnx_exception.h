#pragma once
// Where the exceptions of ONNX's library end.

#include <exception>
#include <new>
#include <optional>
#include <string>
#include <string_view>

#include "support/text.h"

namespace graphpipe::frontend {

/// Reports what the library throws in `step`, made safe to print: it quotes names from the file. Out of memory is
/// rethrown, because it says nothing about the model.
template <typename Step>
std::optional<std::string> exception_of(Step step) {
  try {
    step();
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& problem) {
    return Terminal::encode_text(std::string_view(problem.what()).substr(0, 500)).str();
  }
  return std::nullopt;
}

}  // namespace graphpipe::frontend
