// Which samples a step takes: laws of the order, over all rules.

#include "wire/sample_order.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

using namespace graphpipe::wire;

namespace {

constexpr LastBatch kRules[] = {LastBatch::kWrap, LastBatch::kDrop, LastBatch::kPad, LastBatch::kTrain};

std::vector<int64_t> rows_of(const SampleOrder& order, int64_t step) {
  return order.rows(step, {0, order.samples_of(step)});
}

// How often the steps [0, steps) take each sample.
std::map<int64_t, int64_t> visits(const SampleOrder& order, int64_t steps) {
  std::map<int64_t, int64_t> count;
  for (int64_t step = 0; step < steps; ++step)
    for (const int64_t row : rows_of(order, step)) ++count[row];
  return count;
}

}  // namespace

TEST_CASE("a permutation takes every place once, whatever its size and key") {
  for (const int64_t size : {1, 2, 3, 4, 5, 7, 8, 9, 31, 33, 100, 1000, 1025})
    for (const uint64_t key : {0, 1, 99}) {
      CAPTURE(size);
      const Permutation permutation(size, key);
      std::set<int64_t> seen;
      for (int64_t place = 0; place < size; ++place) {
        const int64_t at = permutation.at(place);
        CHECK((at >= 0 && at < size));
        seen.insert(at);
      }
      CHECK(seen.size() == static_cast<size_t>(size));
    }
}

TEST_CASE("permutations of different keys put every sample at every place equally often, and neighbours apart") {
  constexpr int kSize = 8, kKeys = 8000;
  int at[kSize][kSize] = {}, still_neighbours = 0;
  std::map<std::vector<int64_t>, int> of_four;
  for (uint64_t key = 0; key < kKeys; ++key) {
    const Permutation permutation(kSize, key), four(4, key);
    for (int place = 0; place < kSize; ++place) ++at[place][permutation.at(place)];
    still_neighbours += permutation.at(1) == permutation.at(0) + 1 ? 1 : 0;
    ++of_four[{four.at(0), four.at(1), four.at(2), four.at(3)}];
  }
  // Expected 1000 each, deviation 30.
  for (const auto& of_place : at)
    for (const int count : of_place) CHECK((count > 850 && count < 1150));
  CHECK((still_neighbours > 850 && still_neighbours < 1150));  // 7 of the 56 ordered pairs
  // All 24 orders of four, 333 each, deviation 18.
  CHECK(of_four.size() == 24);
  for (const auto& [order, count] : of_four) CHECK((count > 230 && count < 440));
}

TEST_CASE("a permutation of a hundred million samples needs no list of them") {
  const Permutation permutation(100'000'000, 7);
  std::set<int64_t> seen;
  for (int64_t place = 0; place < 20000; ++place) seen.insert(permutation.at(place * 4999));
  CHECK(seen.size() == 20000);
  CHECK(*seen.begin() < 100'000);
  CHECK(*seen.rbegin() > 99'900'000);
}

TEST_CASE("every epoch takes every sample as often as its rule says") {
  for (const bool shuffle : {false, true})
    for (const LastBatch rule : kRules)
      for (const auto& [samples, batch] : std::vector<std::pair<int64_t, int64_t>>{{12, 4}, {13, 4}, {3, 8}, {1, 1}}) {
        if (rule == LastBatch::kDrop && samples < batch) continue;
        CAPTURE(static_cast<int>(rule));
        CAPTURE(samples);
        const SampleOrder order(samples, batch, {.shuffle = shuffle, .seed = 5, .last_batch = rule});
        for (const int64_t epochs : {1, 2, 5}) {
          const int64_t steps = order.steps(epochs);
          int64_t taken = 0;
          for (const auto& [row, count] : visits(order, steps)) {
            CHECK((row >= 0 && row < samples));
            taken += count;
            if (rule == LastBatch::kTrain) CHECK(count == epochs);
            if (rule == LastBatch::kDrop) CHECK(count <= epochs);
            if (rule == LastBatch::kPad || rule == LastBatch::kWrap) CHECK(count >= epochs);
          }
          if (rule == LastBatch::kTrain) CHECK(taken == epochs * samples);
          if (rule == LastBatch::kDrop) CHECK(taken == epochs * (samples - samples % batch));
          if (rule == LastBatch::kWrap) CHECK((taken >= epochs * samples && taken < epochs * samples + batch));
          if (rule != LastBatch::kTrain) CHECK(taken == steps * batch);
        }
      }
}

TEST_CASE("without shuffling samples follow each other; what the end of an epoch does is the rule's") {
  const auto third = [](LastBatch rule, int64_t step) {
    return rows_of(SampleOrder(5, 2, {.last_batch = rule}), step);
  };
  using Rows = std::vector<int64_t>;
  for (const LastBatch rule : kRules) CHECK(third(rule, 1) == Rows{2, 3});
  CHECK(third(LastBatch::kWrap, 2) == Rows{4, 0});
  CHECK(third(LastBatch::kWrap, 3) == Rows{1, 2});
  CHECK(third(LastBatch::kDrop, 2) == Rows{0, 1});
  CHECK(third(LastBatch::kPad, 2) == Rows{4, 0});
  CHECK(third(LastBatch::kPad, 3) == Rows{0, 1});
  CHECK(third(LastBatch::kTrain, 2) == Rows{4});
  CHECK(third(LastBatch::kTrain, 3) == Rows{0, 1});
  CHECK(third(LastBatch::kWrap, (int64_t{1} << 62) + 3) == rows_of(SampleOrder(5, 2, {}), 3 + 4));  // 2^62 = 4 mod 5
}

TEST_CASE("an order is the same whoever asks for which part of a step, and another in every epoch and for every seed") {
  const OrderRule rule{.shuffle = true, .seed = 11, .last_batch = LastBatch::kPad};
  const SampleOrder order(50, 16, rule), again(50, 16, rule), other(50, 16, {.shuffle = true, .seed = 12});
  std::vector<int64_t> parts = order.rows(3, {0, 5});
  for (const int64_t row : order.rows(3, {5, 16})) parts.push_back(row);
  CHECK(parts == rows_of(again, 3));
  CHECK(rows_of(order, 0) != rows_of(order, order.steps(1)));
  CHECK(rows_of(order, 0) != rows_of(other, 0));
  // The order is part of what a run promises to repeat: it stays what it was.
  const SampleOrder small(10, 5, {.shuffle = true, .seed = 1});
  CHECK(rows_of(small, 0) == std::vector<int64_t>{4, 6, 0, 8, 5});
  CHECK(rows_of(small, 2) == std::vector<int64_t>{5, 1, 4, 9, 7});
}

TEST_CASE("epochs that are more steps than can be counted have none") {
  const SampleOrder order(int64_t{1} << 50, 1, {});
  CHECK(order.steps(1) == int64_t{1} << 50);
  CHECK(order.steps(int64_t{1} << 40) == -1);
}

TEST_CASE("the batches of some steps are their samples, in whole batches") {
  for (const LastBatch rule : kRules)
    for (const int64_t samples : {8, 10, 12, 15}) {
      const SampleOrder order(samples, 4, {.last_batch = rule});
      for (int64_t first = 0; first < 9; ++first) {
        int64_t taken = 0;
        for (int64_t last = first; last < 12; taken += order.samples_of(last++))
          CHECK(4 * order.batches_in(first, last) == taken);
      }
    }
}
