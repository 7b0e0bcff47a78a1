#include "partitioner/piper/cover_knapsack.h"

#include <doctest/doctest.h>

#include "tests/support/random_plan_graphs.h"

namespace graphpipe::partitioner {
namespace {

TEST_CASE("exact covers equal exhaustive search; greedy ones cover, and both bounds hold") {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    tests::Dice dice(seed);
    std::vector<CoverItem> items(dice.below(11));
    for (CoverItem& item : items) item = {static_cast<double>(dice.below(12)), static_cast<double>(1 + dice.below(12))};
    const double need = static_cast<double>(dice.below(50));
    double best = -1;
    for (uint32_t bits = 0; bits < 1u << items.size(); ++bits) {
      CoverItem sum;
      for (size_t i = 0; i < items.size(); ++i)
        if (bits >> i & 1) sum = {sum.cost + items[i].cost, sum.saving + items[i].saving};
      if (sum.saving >= need && (best < 0 || sum.cost < best)) best = sum.cost;
    }
    for (const bool exact : {false, true}) {
      const Cover cover = exact ? cover_exact(items, need) : cover_greedy(items, need);
      CHECK(cover.possible == (best >= 0));
      if (!cover.possible) continue;
      CoverItem sum;
      for (const uint32_t i : cover.chosen) sum = {sum.cost + items[i].cost, sum.saving + items[i].saving};
      CHECK(sum.saving >= need);
      CHECK(sum.cost == cover.cost);
      CHECK(cover.bound <= best);
      CHECK(cover.cost >= best);
      if (exact) CHECK(cover.cost == best);
    }
  }
}

TEST_CASE("a search that runs out of steps says how far it may be off") {
  std::vector<CoverItem> items;
  for (int i = 0; i < 40; ++i) items.push_back({100.0 + i * 7 % 13, 99.0 + i * 5 % 17});
  const Cover cut_short = cover_exact(items, 2000, 10), finished = cover_exact(items, 2000, 5'000'000);
  CHECK(cut_short.possible);
  CHECK(cut_short.bound <= finished.cost);
  CHECK(finished.cost <= cut_short.cost);
}

TEST_CASE("what rounding leaves to be saved does not look for items that are not there") {
  // Seven of nine equal items are enough but for rounding.
  const std::vector<CoverItem> items(9, CoverItem{1, 123456.7});
  for (int i = 0; i < 200; ++i) {
    const double need = 864196.9 - 1e-9 + 1e-11 * i;
    const Cover cover = cover_exact(items, need);
    REQUIRE(cover.possible);
    CHECK(cover.cost >= 7);
    CHECK(cover.cost <= 8);
  }
}

TEST_CASE("the greedy choice goes by cost per saving, takes too much and gives nothing back") {
  const std::vector<CoverItem> items = {{1, 10}, {2, 15}, {9, 100}};
  const Cover greedy = cover_greedy(items, 20), exact = cover_exact(items, 20);
  CHECK(greedy.chosen == std::vector<uint32_t>{2});
  CHECK(greedy.cost == 9);
  CHECK(exact.chosen == std::vector<uint32_t>{0, 1});
  // The example of the header.
  const std::vector<CoverItem> two = {{1, 2}, {5, 5}};
  CHECK(cover_greedy(two, 5).cost == 6);
  CHECK(cover_greedy(two, 5).bound == doctest::Approx(4));
  CHECK(cover_exact(two, 5).cost == 5);
}

}  // namespace
}  // namespace graphpipe::partitioner
