// The entry point of libFuzzer for one target: GRAPHPIPE_FUZZ_TARGET is its name in targets.cpp.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "support/check.h"
#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const graphpipe::tests::FuzzTarget* const target = [] {
    const auto targets = graphpipe::tests::fuzz_targets();
    const auto found = std::ranges::find(targets, GRAPHPIPE_FUZZ_TARGET, &graphpipe::tests::FuzzTarget::name);
    GP_CHECK(found != targets.end());
    return &*found;
  }();
  target->run({reinterpret_cast<const char*>(data), size});
  return 0;
}
