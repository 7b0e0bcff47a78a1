#pragma once
// Cores of its own for a rank.

#include <cstdint>

namespace graphpipe::runtime {

/// Gives rank r of `ranks` on this host the cores [r * threads, (r + 1) * threads) of those that this process may use,
/// also for threads that it starts later. False, and nothing is done, where they do not suffice for all ranks.
bool pin_to_cores(int32_t rank, int32_t ranks, int threads);

}  // namespace graphpipe::runtime
