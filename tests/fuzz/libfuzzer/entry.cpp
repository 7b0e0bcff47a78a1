// The entry points of libFuzzer for one target: GRAPHPIPE_FUZZ_TARGET is the function that makes it. Only what that one
// reaches is linked: libFuzzer looks at every counter of the program after each execution. With GRAPHPIPE_FUZZ_SEEDS
// the target's seeds are written into that folder, which is given as a corpus then.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>

#include "tests/fuzz/targets.h"

namespace {

using graphpipe::tests::Dice;
using graphpipe::tests::FuzzTarget;

const FuzzTarget& target() {
  static const FuzzTarget made = graphpipe::tests::GRAPHPIPE_FUZZ_TARGET();
  return made;
}

// One of the target's words over what stands there, or between.
size_t put_word(uint8_t* data, size_t size, size_t max_size, Dice& dice) {
  const std::string_view word = target().words[dice.below(target().words.size())];
  const size_t at = dice.below(size + 1);
  const size_t after = dice.below(2) == 0 ? at : std::min(size, at + word.size());
  if (at + word.size() + (size - after) > max_size) return size;
  std::copy_backward(data + after, data + size, data + at + word.size() + (size - after));
  std::ranges::copy(word, data + at);
  return at + word.size() + (size - after);
}

}  // namespace

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* folder = std::getenv("GRAPHPIPE_FUZZ_SEEDS");
  if (folder == nullptr) return 0;
  size_t number = 0;
  for (const std::string& seed : target().seeds())
    std::ofstream(folder + ("/seed" + std::to_string(number++)), std::ios::binary) << seed;
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  target().run({reinterpret_cast<const char*>(data), size});
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  Dice dice(seed);
  if (target().mutate == nullptr)
    return dice.below(4) == 0 ? put_word(data, size, max_size, dice) : LLVMFuzzerMutate(data, size, max_size);
  if (dice.below(16) == 0) return LLVMFuzzerMutate(data, size, max_size);
  const std::string changed = target().mutate({reinterpret_cast<const char*>(data), size}, dice);
  if (changed.size() > max_size) return size;
  std::ranges::copy(changed, reinterpret_cast<char*>(data));
  return changed.size();
}
