#pragma once
// SHA-256 digests, as 64 lower-case hex digits.

#include <string>
#include <string_view>

#include "support/result.h"

namespace graphpipe::driver {

std::string sha256_of_text(std::string_view text);
/// Reads the file in pieces. Errors: kUnreadableFile.
Result<std::string> sha256_of_file(const std::string& path);

}  // namespace graphpipe::driver
