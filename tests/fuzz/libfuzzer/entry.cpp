// The entry points of libFuzzer for one target: GRAPHPIPE_FUZZ_TARGET is its name in targets.cpp.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "support/check.h"
#include "tests/fuzz/targets.h"

namespace {

using graphpipe::tests::FuzzTarget;

const FuzzTarget& target() {
  static const FuzzTarget* const found = [] {
    const auto targets = graphpipe::tests::fuzz_targets();
    const auto at = std::ranges::find(targets, GRAPHPIPE_FUZZ_TARGET, &FuzzTarget::name);
    GP_CHECK(at != targets.end());
    return &*at;
  }();
  return *found;
}

}  // namespace

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  target().run({reinterpret_cast<const char*>(data), size});
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  graphpipe::tests::Dice dice(seed);
  if (target().mutate == nullptr || dice.below(16) == 0) return LLVMFuzzerMutate(data, size, max_size);
  const std::string changed = target().mutate({reinterpret_cast<const char*>(data), size}, dice);
  if (changed.size() > max_size) return size;
  std::ranges::copy(changed, reinterpret_cast<char*>(data));
  return changed.size();
}
