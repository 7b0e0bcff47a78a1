#pragma once
// Patterns of names, as users write them for parameters.

#include <string_view>

namespace graphpipe {

/// '*' stands for any characters, '?' for one. Time linear in pattern x name.
bool matches(std::string_view pattern, std::string_view name);

}  // namespace graphpipe
