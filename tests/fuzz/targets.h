#pragma once
// One target per reader of text or bytes that come from outside. A target runs its reader on any bytes at all and
// checks what must hold of whatever the reader accepts; it fails by ending the process (GP_CHECK, a sanitizer, a
// crash). To add one: a function, and a row in targets.cpp.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/dice.h"

namespace graphpipe::tests {

struct FuzzTarget {
  std::string_view name;
  void (*run)(std::string_view input);
  /// Inputs that the reader accepts, from which others are made.
  std::vector<std::string> (*seeds)();
  /// Pieces that mean something to the reader.
  std::vector<std::string_view> words;
  /// Changes an input as what it is; null where changing bytes does.
  std::string (*mutate)(std::string_view input, Dice& dice) = nullptr;
};

std::span<const FuzzTarget> fuzz_targets();

}  // namespace graphpipe::tests
