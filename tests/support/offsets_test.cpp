// Offsets against a checker, an exhaustive search and packings of known height, all of which share nothing with the
// allocator; then the instances of MiniMalloc.

#include "support/offsets.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <sstream>

#include "tests/support/dice.h"
#include "tests/support/test_data.h"

using namespace graphpipe;
using tests::Dice;

namespace {

using Buffers = std::vector<TimedBuffer>;

bool at_once(const TimedBuffer& a, const TimedBuffer& b) { return a.first < b.end && b.first < a.end; }

/// Most bytes that live at once: some buffer's first moment has them.
Bytes live_peak(const Buffers& buffers) {
  Bytes peak;
  for (const TimedBuffer& moment : buffers) {
    Bytes live;
    for (const TimedBuffer& other : buffers)
      if (other.first <= moment.first && moment.first < other.end) live += other.size;
    peak = std::max(peak, live);
  }
  return peak;
}

/// What is wrong with a plan; empty where nothing is.
std::string plan_problem(const Buffers& buffers, const OffsetPlan& plan) {
  if (plan.offsets.size() != buffers.size()) return "not one offset per buffer";
  Bytes height;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const int64_t offset = plan.offsets[i].count;
    if (offset < 0 || offset % buffers[i].alignment.count != 0) return "offset of " + std::to_string(i);
    height = std::max(height, plan.offsets[i] + buffers[i].size);
    for (size_t j = 0; j < i; ++j)
      if (at_once(buffers[i], buffers[j]) && plan.offsets[i] < plan.offsets[j] + buffers[j].size &&
          plan.offsets[j] < plan.offsets[i] + buffers[i].size)
        return std::to_string(j) + " and " + std::to_string(i) + " overlap";
  }
  if (plan.height != height) return "height";
  if (plan.lower_bound < live_peak(buffers)) return "bound below the bytes that live at once";
  return plan.lower_bound > plan.height ? "bound above the height" : "";
}

/// The least height of all orders in which buffers are stacked one on the other: a lowest placement is one of these.
Bytes exhaustive_height(const Buffers& buffers) {
  std::vector<size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  Bytes lowest(std::numeric_limits<int64_t>::max());
  do {
    std::vector<int64_t> ends(buffers.size(), 0);
    Bytes height;
    for (size_t i = 0; i < order.size(); ++i) {
      const TimedBuffer& buffer = buffers[order[i]];
      int64_t offset = 0;
      for (size_t j = 0; j < i; ++j)
        if (at_once(buffer, buffers[order[j]])) offset = std::max(offset, ends[order[j]]);
      while (offset % buffer.alignment.count != 0) ++offset;
      ends[order[i]] = offset + buffer.size.count;
      height = std::max(height, Bytes(ends[order[i]]));
    }
    lowest = std::min(lowest, height);
  } while (std::ranges::next_permutation(order).found);
  return lowest;
}

Buffers random_buffers(Dice& dice, size_t count, bool aligned) {
  Buffers buffers;
  for (size_t i = 0; i < count; ++i) {
    const auto first = static_cast<int64_t>(dice.below(12)) - 4;
    const auto length = static_cast<int64_t>(1 + dice.below(6));
    buffers.push_back({first, first + length, Bytes(static_cast<int64_t>(dice.below(9)))});
    if (aligned) buffers.back().alignment = Bytes(int64_t{1} << dice.below(4));
  }
  return buffers;
}

/// A block of time and bytes, cut again and again: the pieces fit back into it, and leave no byte free.
Buffers pieces_of_block(Dice& dice, int64_t length, int64_t height, size_t count) {
  struct Piece {
    int64_t first, end, size;
  };
  std::vector<Piece> pieces = {{0, length, height}};
  while (pieces.size() < count) {
    Piece& piece = pieces[dice.below(pieces.size())];
    Piece other = piece;
    if (dice.below(2) == 0 && piece.end - piece.first > 1) {
      piece.end = other.first =
          piece.first + 1 + static_cast<int64_t>(dice.below(static_cast<size_t>(piece.end - piece.first - 1)));
    } else if (piece.size > 1) {
      piece.size = 1 + static_cast<int64_t>(dice.below(static_cast<size_t>(piece.size - 1)));
      other.size -= piece.size;
    } else {
      continue;
    }
    pieces.push_back(other);
  }
  Buffers buffers;
  for (const Piece& piece : pieces) buffers.push_back({piece.first, piece.end, Bytes(piece.size)});
  return buffers;
}

Buffers read_instance(const std::string& name) {
  std::istringstream lines(tests::read_data("minimalloc/" + name));
  std::string line;
  std::getline(lines, line);
  REQUIRE(line == "id,lower,upper,size");
  Buffers buffers;
  while (std::getline(lines, line)) {
    std::ranges::replace(line, ',', ' ');
    std::istringstream row(line);
    int64_t id = 0, lower = 0, upper = 0, size = 0;
    row >> id >> lower >> upper >> size;
    REQUIRE(!row.fail());
    buffers.push_back({lower, upper, Bytes(size)});
  }
  return buffers;
}

}  // namespace

TEST_CASE("the checker of offsets finds what is wrong") {
  const Buffers buffers = {{0, 2, 4_B}, {1, 3, 4_B, 4_B}, {2, 4, 4_B}};
  CHECK(plan_problem(buffers, {{0_B, 4_B, 0_B}, 8_B, 8_B}) == "");
  CHECK(plan_problem(buffers, {{0_B, 0_B, 4_B}, 8_B, 8_B}) == "0 and 1 overlap");
  CHECK(plan_problem(buffers, {{0_B, 5_B, 0_B}, 9_B, 8_B}) == "offset of 1");
  CHECK(plan_problem(buffers, {{0_B, 4_B, 0_B}, 9_B, 8_B}) == "height");
  CHECK(plan_problem(buffers, {{0_B, 4_B, 0_B}, 8_B, 7_B}) == "bound below the bytes that live at once");
  CHECK(plan_problem(buffers, {{0_B, 4_B, 0_B}, 8_B, 9_B}) == "bound above the height");
}

TEST_CASE("random buffers never overlap, and are placed alike every time") {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    Dice dice(seed);
    const Buffers buffers = random_buffers(dice, 1 + dice.below(60), seed % 2 == 0);
    const OffsetOptions options = {.max_steps = seed % 3 == 0 ? 0 : 200'000};
    const OffsetPlan plan = plan_offsets(buffers, options);
    CHECK(plan_problem(buffers, plan) == "");
    CHECK(plan_offsets(buffers, options).offsets == plan.offsets);
  }
}

TEST_CASE("few buffers are placed as low as an exhaustive search finds") {
  int above_live = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    CAPTURE(seed);
    Dice dice(seed + 5000);
    Buffers buffers = random_buffers(dice, 1 + dice.below(7), seed % 3 == 0);
    // One alignment for all, as in an arena of tensors.
    if (seed % 3 == 1)
      for (TimedBuffer& buffer : buffers) buffer.alignment = 4_B;
    const Bytes lowest = exhaustive_height(buffers);
    const OffsetPlan plan = plan_offsets(buffers);
    REQUIRE(plan_problem(buffers, plan) == "");
    CHECK(plan.height == lowest);
    CHECK(plan.lower_bound == lowest);
    above_live += lowest > live_peak(buffers);
    // Whether a capacity suffices is decided either way.
    CHECK(plan_offsets(buffers, {.capacity = lowest}).height == lowest);
    if (lowest.count > 0) CHECK(plan_offsets(buffers, {.capacity = lowest - 1_B}).lower_bound >= lowest);
  }
  CHECK(above_live > 30);
}

TEST_CASE("pieces of a block fit back into it") {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    Dice dice(seed);
    const Buffers buffers = pieces_of_block(dice, 40, 4096, 20 + dice.below(60));
    const OffsetPlan plan = plan_offsets(buffers);
    CHECK(plan_problem(buffers, plan) == "");
    CHECK(plan.height == 4096_B);
  }
}

TEST_CASE("buffers that need no thought") {
  CHECK(plan_offsets({}).height == 0_B);
  // The second begins when the first has ended; an empty one takes no room.
  const Buffers buffers = {{0, 5, 8_B}, {5, 9, 8_B}, {0, 9, 0_B}, {8, 9, 3_B, 16_B}};
  const OffsetPlan plan = plan_offsets(buffers);
  CHECK(plan_problem(buffers, plan) == "");
  CHECK(plan.offsets[0] == 0_B);
  CHECK(plan.height == 11_B);
  // Nothing is searched where the bytes that live at once exceed the capacity.
  CHECK(plan_offsets(buffers, {.capacity = 10_B}).lower_bound == 11_B);
}

TEST_CASE("many buffers are placed without a search") {
  Dice dice(7);
  Buffers buffers;
  for (int64_t i = 0; i < 2500; ++i) {
    const auto length = static_cast<int64_t>(1 + dice.below(60));
    buffers.push_back({i, i + length, Bytes(static_cast<int64_t>(64 * (1 + dice.below(100)))), 64_B});
  }
  const OffsetPlan plan = plan_offsets(buffers);
  CHECK(plan_problem(buffers, plan) == "");
  CHECK(plan.height.count <= plan.lower_bound.count * 11 / 10);
}

TEST_CASE("the instances of MiniMalloc fit into their capacity") {
  int instances = 0;
  for (const auto& file : std::filesystem::directory_iterator(tests::data_path("minimalloc"))) {
    const std::string name = file.path().filename().string();
    if (!name.ends_with(".csv")) continue;
    CAPTURE(name);
    const Bytes capacity(std::stoll(name.substr(name.find('.') + 1)));
    const Buffers buffers = read_instance(name);
    const OffsetPlan plan = plan_offsets(buffers, {.capacity = capacity});
    CHECK(plan_problem(buffers, plan) == "");
    CHECK(plan.height <= capacity);
    ++instances;
  }
  CHECK(instances == 11);
}
