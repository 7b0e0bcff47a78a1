#pragma once
// "Did you mean": the known word nearest to one that was mistyped.

#include <string>
#include <string_view>
#include <vector>

namespace graphpipe::driver {

/// "; did you mean 'x'?" with the known word of the smallest edit distance (Levenshtein), the first of equals; empty
/// where none is within two edits or a third of the word.
std::string suggestion(std::string_view word, const std::vector<std::string>& known);

}  // namespace graphpipe::driver
