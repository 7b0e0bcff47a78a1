#pragma once
// The compression function of SHA-256 over whole blocks, by the instructions that some CPUs have for it.

#include <array>
#include <cstddef>
#include <cstdint>

namespace graphpipe::runtime {

using Sha256State = std::array<uint32_t, 8>;
/// The constants of the 64 rounds.
extern const uint32_t kSha256Rounds[64];

/// Folds `count` blocks of 64 bytes into the state.
using Sha256Blocks = void (*)(Sha256State& state, const unsigned char* data, size_t count);

/// The portable one.
void sha256_blocks(Sha256State& state, const unsigned char* data, size_t count);
/// One by instructions of their own, some five times as fast; null where this CPU has none that we know.
Sha256Blocks sha256_blocks_of_cpu();

}  // namespace graphpipe::runtime
