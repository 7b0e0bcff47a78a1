// Runs every target on its seeds and on seeded mutations of them: the same inputs on every run. A failing input ends
// the process; GRAPHPIPE_FUZZ_KEEP names a file that holds the input in work. GRAPHPIPE_FUZZ_ROUNDS runs more,
// GRAPHPIPE_FUZZ_TARGET one target alone, GRAPHPIPE_FUZZ_SEED other mutations.

#include <doctest/doctest.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/fuzz/targets.h"
#include "tests/support/dice.h"

namespace graphpipe::tests {
namespace {

std::string mutated(std::string input, const FuzzTarget& target, const std::vector<std::string>& seeds, Dice& dice) {
  if (target.mutate != nullptr && dice.below(8) > 0) return target.mutate(input, dice);
  for (size_t changes = 1 + dice.below(4); changes > 0; --changes) {
    const size_t at = dice.below(input.size() + 1);
    const size_t length = std::min(input.size() - at, dice.below(40));
    switch (dice.below(7)) {
      case 0:
        input.insert(at, 1, static_cast<char>(dice.below(256)));
        break;
      case 1:
        input.erase(at, length);
        break;
      case 2:
        input.insert(at, input.substr(at, length));
        break;
      case 3:
        input.insert(at, target.words[dice.below(target.words.size())]);
        break;
      case 4:
        input.resize(at);
        break;
      case 5: {
        const std::string& other = seeds[dice.below(seeds.size())];
        input.insert(at, other.substr(dice.below(other.size() + 1), 60));
        break;
      }
      default:
        if (at < input.size()) input[at] = static_cast<char>(input[at] ^ (1 << dice.below(8)));
    }
  }
  return input;
}

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void run(const FuzzTarget& target, const std::string& input, size_t number) {
  if (const char* kept = std::getenv("GRAPHPIPE_FUZZ_KEEP")) std::ofstream(kept, std::ios::binary) << input;
  const double start = thread_seconds();
  target.run(input);
  CAPTURE(number);
  // What no input may take, as in scripts/fuzz; the slowest takes a fiftieth of it. Of the processor, since a machine
  // may stand still.
  CHECK(thread_seconds() - start < 10);
}

size_t number_of(const char* variable, size_t otherwise) {
  const char* wanted = std::getenv(variable);
  return wanted != nullptr ? std::strtoul(wanted, nullptr, 10) : otherwise;
}

TEST_CASE("no reader crashes, hangs or accepts what it cannot print") {
  const size_t rounds = number_of("GRAPHPIPE_FUZZ_ROUNDS", 500), first_seed = number_of("GRAPHPIPE_FUZZ_SEED", 1);
  const char* only = std::getenv("GRAPHPIPE_FUZZ_TARGET");
  for (const FuzzTarget& target : fuzz_targets()) {
    const std::string name(target.name);
    if (only != nullptr && name != only) continue;
    CAPTURE(name);
    const std::vector<std::string> seeds = target.seeds();
    REQUIRE_FALSE(seeds.empty());
    run(target, "", 0);
    for (const std::string& seed : seeds) run(target, seed, 0);
    Dice dice(first_seed);
    for (size_t round = 1; round <= rounds; ++round)
      run(target, mutated(seeds[dice.below(seeds.size())], target, seeds, dice), round);
  }
}

TEST_CASE("what fuzzing has found stays mended") {
  size_t files = 0;
  for (const FuzzTarget& target : fuzz_targets()) {
    const std::filesystem::path folder = GRAPHPIPE_SOURCE_DIR "/tests/fuzz/findings/" + std::string(target.name);
    if (!std::filesystem::exists(folder)) continue;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      std::ifstream file(entry.path(), std::ios::binary);
      run(target, {std::istreambuf_iterator<char>(file), {}}, ++files);
    }
  }
  CHECK(files > 0);
}

}  // namespace
}  // namespace graphpipe::tests
