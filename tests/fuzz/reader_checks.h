#pragma once
// What the targets check of every reader's answer.

#include <string>
#include <string_view>
#include <vector>

#include "support/check.h"
#include "support/result.h"

namespace graphpipe::tests {

/// No byte of a hostile file reaches a terminal.
inline void check_printable(const Diagnostics& problems) {
  for (const Diagnostic& problem : problems)
    for (const char c : to_line(problem)) GP_CHECK(c >= 0x20 && c < 0x7f);
}

template <typename T>
void check_problems(const Result<T>& result) {
  GP_CHECK(result.ok() == result.problems().empty());
  check_printable(result.problems());
}

/// What a reader accepts prints, reads back the same and prints the same.
template <typename Read, typename Print>
void check_round_trip(std::string_view input, Read read, Print print) {
  const auto first = read(input);
  check_problems(first);
  if (!first.ok()) return;
  const std::string printed = print(*first);
  const auto second = read(printed);
  GP_CHECK(second.ok());
  GP_CHECK(print(*second) == printed);
}

/// Pieces of the project's own files.
inline const std::vector<std::string_view> kJsonWords = {
    "{", "}", "[", "]", ":", ",", "null", "1e400", "-1", "\"", "\"schema\"", "true", "4294967296", "\\u0000"};

}  // namespace graphpipe::tests
