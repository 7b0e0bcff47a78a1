#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "partitioner/torchgpipe/planner.h"
#include "tests/support/random_layers.h"

namespace graphpipe::partitioner {
namespace {

using namespace tests;

double weight(const std::vector<double>& costs, size_t begin, size_t end) {
  if (begin > end) return 0;
  return std::accumulate(costs.begin() + static_cast<ptrdiff_t>(begin), costs.begin() + static_cast<ptrdiff_t>(end),
                         0.0);
}

/// The original's loop, word by word (docs/planners.md, section 4).
std::vector<size_t> by_definition(const std::vector<int64_t>& raw, size_t parts) {
  const auto [smallest, largest] = std::ranges::minmax(raw);
  std::vector<double> costs;
  for (const int64_t cost : raw)
    costs.push_back(largest > smallest ? static_cast<double>(cost - smallest) / static_cast<double>(largest - smallest)
                                       : 0);
  std::vector<size_t> ends;
  for (size_t i = 1; i < parts; ++i) ends.push_back(raw.size() / parts * i);
  ends.push_back(raw.size());
  const auto blocks = [&] {
    std::vector<double> sums;
    for (size_t i = 0; i < parts; ++i) sums.push_back(weight(costs, i == 0 ? 0 : ends[i - 1], ends[i]));
    return sums;
  };
  while (true) {
    std::vector<double> sums = blocks();
    size_t heaviest = 0;
    for (size_t i = 1; i < parts; ++i)
      if (sums[i] >= sums[heaviest]) heaviest = i;
    const double max_now = sums[heaviest];
    while (true) {
      sums = blocks();
      size_t lightest = 0;
      for (size_t i = 1; i < parts; ++i)
        if (sums[i] < sums[lightest]) lightest = i;
      if (max_now <= sums[lightest] + 1) {
        for (size_t i = 1; i < parts; ++i) ends[i] = std::max(ends[i], ends[i - 1]);  // blocks that are empty
        return ends;
      }
      size_t moved = lightest + 1;
      if (heaviest < lightest) {
        moved = lightest - 1;
        --ends[moved];
      } else {
        ++ends[lightest];
      }
      if (moved == heaviest) break;
    }
  }
}

int64_t heaviest_block(const std::vector<int64_t>& costs, const std::vector<size_t>& ends) {
  int64_t heaviest = 0;
  for (size_t i = 0, begin = 0; i < ends.size(); begin = ends[i++])
    heaviest = std::max(heaviest, std::accumulate(costs.begin() + static_cast<ptrdiff_t>(begin),
                                                  costs.begin() + static_cast<ptrdiff_t>(ends[i]), int64_t{0}));
  return heaviest;
}

/// The best chain split, by dynamic programming over (parts, layers).
int64_t best_heaviest(const std::vector<int64_t>& costs, size_t parts) {
  std::vector<int64_t> before(costs.size() + 1, INT64_MAX);
  before[0] = 0;
  for (size_t part = 0; part < parts; ++part) {
    std::vector<int64_t> after = before;
    for (size_t end = 1; end <= costs.size(); ++end) {
      int64_t block = 0;
      for (size_t begin = end; begin-- > 0;) {
        block += costs[begin];
        if (before[begin] != INT64_MAX) after[end] = std::min(after[end], std::max(before[begin], block));
      }
    }
    before = after;
  }
  return before.back();
}

}  // namespace

TEST_CASE("torchgpipe's blocks equal their definition, and its bound the best chain split") {
  double largest = 1;
  int worse = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    CAPTURE(seed);
    tests::Dice dice(seed);
    std::vector<int64_t> costs(2 + dice.below(14));
    for (int64_t& cost : costs) cost = static_cast<int64_t>(dice.below(seed % 5 == 0 ? 3 : 10'000));
    const size_t parts = 1 + dice.below(std::min<size_t>(costs.size(), 6));
    const std::vector<size_t> ends = torchgpipe_blocks(costs, parts);
    CHECK(ends == by_definition(costs, parts));
    const int64_t best = smallest_heaviest_block(costs, parts), own = heaviest_block(costs, ends);
    CHECK(best == best_heaviest(costs, parts));
    CHECK(own >= best);
    if (best == 0) continue;
    worse += own > best;
    largest = std::max(largest, static_cast<double>(own) / static_cast<double>(best));
  }
  MESSAGE(worse, " of 400 chains are not balanced best, up to ", largest, " times the best heaviest block");
  CHECK(worse > 0);
}

TEST_CASE("torchgpipe's plan is the same on every run, and too few layers are refused") {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    tests::Dice dice(seed);
    LayerTable graph = tests::layer_table(8, tests::random_layer_edges(dice, 8, 3));
    for (Layer& layer : graph.layers) layer.forward_seconds = static_cast<double>(1 + dice.below(900)) / 1e6;
    LayerRequest request{.graph = &graph};
    request.machine.levels = {{.count = 3, .bandwidth = 1e9}};
    const auto answer = plan_layers(*find_planner("torchgpipe"), request);
    REQUIRE(answer.ok());
    CHECK(answer->bound <= answer->objective);
    CHECK(plan_layers(*find_planner("torchgpipe"), request)->plan == answer->plan);
    request.machine.levels[0].count = 9;
    CHECK_FALSE(plan_layers(*find_planner("torchgpipe"), request).ok());
  }
}

}  // namespace graphpipe::partitioner
