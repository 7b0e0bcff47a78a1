#include "runtime/launch/pin_to_cores.h"

#include <sched.h>

#include <vector>

namespace graphpipe::runtime {

bool pin_to_cores(int32_t rank, int32_t ranks, int threads) {
  cpu_set_t allowed, own;
  CPU_ZERO(&own);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return false;
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &allowed)) cores.push_back(core);
  if (static_cast<int>(cores.size()) < ranks * threads) return false;
  for (int i = 0; i < threads; ++i) CPU_SET(cores[static_cast<size_t>(rank * threads + i)], &own);
  return sched_setaffinity(0, sizeof own, &own) == 0;
}

}  // namespace graphpipe::runtime
