#pragma once
// Sizes as people type them.

#include <optional>
#include <string_view>

namespace graphpipe::driver {

/// "16GiB" and "1.5e9" as a number of bytes: with KB, MB, GB or TB of 1000, with KiB, MiB, GiB or TiB of 1024 each, or
/// with no unit. Unset for other words.
std::optional<double> bytes_of_word(std::string_view word);

}  // namespace graphpipe::driver
