#include "tests/fuzz/targets.h"

namespace graphpipe::tests {

std::span<const FuzzTarget> fuzz_targets() {
  static const std::vector<FuzzTarget> targets = {
#define FUZZ_TARGET(name) fuzz_##name(),
#include "tests/fuzz/target_names.inc"
#undef FUZZ_TARGET
  };
  return targets;
}

}  // namespace graphpipe::tests
