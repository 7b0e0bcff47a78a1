#pragma once
// One target per reader of text or bytes that come from outside. A target runs its reader on any bytes at all and
// checks what must hold of whatever the reader accepts; it fails by ending the process (GP_CHECK, a sanitizer, a
// crash). To add one: a function fuzz_<name> that makes it, beside those of its kind, and a line in target_names.inc.

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

/// Each makes the target of its name: a function of its own, so that a program of one target links the one reader.
#define FUZZ_TARGET(name) FuzzTarget fuzz_##name();
#include "tests/fuzz/target_names.inc"
#undef FUZZ_TARGET

/// All of them.
std::span<const FuzzTarget> fuzz_targets();

}  // namespace graphpipe::tests
