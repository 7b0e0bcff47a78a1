#pragma once
// The compression function of SHA-256 over whole blocks, with the instructions that some CPUs have for it.

#include <array>
#include <cstddef>
#include <cstdint>

namespace graphpipe::runtime {

using Sha256State = std::array<uint32_t, 8>;
/// The constants of the 64 rounds.
extern const uint32_t kSha256Rounds[64];

/// Processes `count` blocks of 64 bytes into the state.
using Sha256Blocks = void (*)(Sha256State& state, const unsigned char* data, size_t count);

/// The portable implementation.
void sha256_blocks(Sha256State& state, const unsigned char* data, size_t count);
/// An implementation with dedicated instructions, about five times as fast; null if this CPU has none that we know.
Sha256Blocks sha256_blocks_of_cpu();

}  // namespace graphpipe::runtime
