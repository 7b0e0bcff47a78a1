#include "support/check.h"

#include <cstdio>
#include <cstdlib>

namespace graphpipe {

void fail_check(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "graphpipe: internal defect: %s does not hold (%s:%d); please report it\n", condition, file,
               line);
  std::fflush(stderr);
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
  std::abort();  // libFuzzer keeps the input of what aborts, and loses that of what exits at once
#endif
  std::_Exit(70);
}

}  // namespace graphpipe
