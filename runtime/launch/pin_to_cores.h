#pragma once
// Pins a rank to cores of its own.

#include <cstdint>

namespace graphpipe::runtime {

/// Gives rank r of `ranks` on this host the cores [r * threads, (r + 1) * threads) of those that this process may use,
/// including for threads that it starts later. Returns false, and changes nothing, if there are not enough cores for
/// all ranks.
bool pin_to_cores(int32_t rank, int32_t ranks, int threads);

}  // namespace graphpipe::runtime
