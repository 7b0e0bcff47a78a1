#pragma once
// SHA-256 (FIPS 180-4), so that generated programs need no cryptography library for their manifest and for
// the handshakes between ranks.

#include <array>
#include <cstddef>
#include <span>
#include <string>

namespace graphpipe::runtime {

using Sha256Digest = std::array<std::byte, 32>;
Sha256Digest sha256(std::span<const std::byte> bytes);

/// The digest as 64 lower-case hex digits.
std::string sha256_hex(std::span<const std::byte> bytes);

}  // namespace graphpipe::runtime
