#pragma once
// SHA-256 (FIPS 180-4), so that generated programs need no cryptography library for their manifest.

#include <cstddef>
#include <span>
#include <string>

namespace graphpipe::runtime {

/// 64 lower-case hex digits.
std::string sha256_hex(std::span<const std::byte> bytes);

}  // namespace graphpipe::runtime
