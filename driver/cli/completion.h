#pragma once
// What a shell reads to complete verbs, flags and their values: made from the table of verbs.

#include <string>
#include <string_view>

namespace graphpipe::driver {

/// A script for "bash", "zsh" or "fish". Where a flag takes one of some words, these are offered; for numbers nothing,
/// else files.
std::string completion_script(std::string_view shell);

}  // namespace graphpipe::driver
