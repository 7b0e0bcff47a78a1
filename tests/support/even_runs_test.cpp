#include "support/even_runs.h"

#include <doctest/doctest.h>

#include <random>

namespace graphpipe {
namespace {

/// The smallest of the largest sums over all ways to cut the weights into so many runs.
template <typename Number>
Number by_trying_all(const std::vector<Number>& weight, size_t runs, size_t begin = 0) {
  if (runs == 1) return std::accumulate(weight.begin() + static_cast<std::ptrdiff_t>(begin), weight.end(), Number{0});
  Number best = std::numeric_limits<Number>::max(), first = 0;
  for (size_t end = begin + 1; end + runs - 1 <= weight.size(); ++end) {
    first += weight[end - 1];
    best = std::min(best, std::max(first, by_trying_all(weight, runs - 1, end)));
  }
  return best;
}

template <typename Number>
void check_even(const std::vector<Number>& weight, size_t runs) {
  const std::vector<size_t> ends = even_runs(weight, runs);
  REQUIRE(ends.size() == runs);
  CHECK(ends.back() == weight.size());
  for (size_t run = 0; run < runs; ++run) CHECK(ends[run] > (run == 0 ? 0 : ends[run - 1]));
  CHECK(largest_run(weight, ends) == by_trying_all(weight, runs));
}

}  // namespace

TEST_CASE("the largest of even runs is the smallest of all ways to cut, of whole numbers and of others") {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    std::vector<int64_t> whole(1 + random() % 9);
    std::vector<double> eighths;  // whose sums are exact in every order
    for (int64_t& weight : whole) {
      weight = static_cast<int64_t>(random() % (seed % 3 == 0 ? 4 : 1000));
      eighths.push_back(static_cast<double>(weight) / 8);
    }
    const size_t runs = 1 + random() % whole.size();
    check_even(whole, runs);
    check_even(eighths, runs);
  }
}

TEST_CASE("4, 1 and 3 in two runs are 4, and 1 with 3") {
  CHECK(even_runs(std::vector<double>{4, 1, 3}, 2) == std::vector<size_t>{1, 3});
}

}  // namespace graphpipe
