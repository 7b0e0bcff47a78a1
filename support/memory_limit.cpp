#include "support/memory_limit.h"

#include <sys/resource.h>

#include "support/text.h"

namespace graphpipe {

std::string memory_hint() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "check the memory of this host";
  return text("raise the limit of address space (ulimit -v), which is ", static_cast<uint64_t>(limit.rlim_cur >> 10),
              " KiB; programs map far more than they use");
}

}  // namespace graphpipe
