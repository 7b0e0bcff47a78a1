#include "ir/sample_function.h"

#include <doctest/doctest.h>

#include <random>

using graphpipe::Samples;
using graphpipe::ir::SampleFunction;

TEST_CASE("a polynomial is evaluated, and never negative") {
  const SampleFunction f = SampleFunction::polynomial(3, 2, 0.5);
  CHECK(f.at(Samples(4)) == doctest::Approx(3 + 8 + 8));
  CHECK(SampleFunction::polynomial(-5, 1).at(2.0) == 0);
  CHECK(SampleFunction().is_zero());
  CHECK_FALSE(f.is_zero());
}

TEST_CASE("a table is linear between its points, constant below the first, and goes on along its last segment") {
  const SampleFunction f = SampleFunction::table({{2, 10}, {4, 14}, {8, 30}});
  CHECK(f.at(1.0) == 10);
  CHECK(f.at(2.0) == 10);
  CHECK(f.at(3.0) == 12);
  CHECK(f.at(6.0) == 22);
  CHECK(f.at(16.0) == 62);
  CHECK(SampleFunction::table({{4, 7}}).at(100.0) == 7);
  CHECK(SampleFunction::table({{1, 5}, {2, 1}}).at(10.0) == 0);
}

TEST_CASE("a sum is the sum of the values where tables have points") {
  std::mt19937 random(7);
  const SampleFunction polynomial = SampleFunction::polynomial(1, 2);
  for (int round = 0; round < 50; ++round) {
    const auto draw = [&] { return static_cast<double>(random() % 100); };
    const SampleFunction a = SampleFunction::table({{1, draw()}, {3, 200 + draw()}, {9, 500 + draw()}});
    const SampleFunction b = SampleFunction::table({{2, draw()}, {9, 300 + draw()}});
    for (double n : {1.0, 2.0, 3.0, 5.0, 9.0, 20.0}) {
      CHECK((a + b).at(n) == doctest::Approx(a.at(n) + b.at(n)));
      CHECK((a + b).at(n) == doctest::Approx((b + a).at(n)));
    }
    for (double n : {1.0, 3.0, 6.0, 9.0, 12.0}) CHECK((a + polynomial).at(n) == doctest::Approx(a.at(n) + 1 + 2 * n));
  }
}

TEST_CASE("the larger of two functions is at least both") {
  const SampleFunction a = SampleFunction::polynomial(1, 5), b = SampleFunction::polynomial(4, 2);
  const SampleFunction c = SampleFunction::table({{1, 3}, {4, 90}});
  for (double n : {1.0, 2.0, 4.0, 8.0}) {
    CHECK(SampleFunction::larger(a, b).at(n) >= std::max(a.at(n), b.at(n)));
    CHECK(SampleFunction::larger(a, a).at(n) == a.at(n));
  }
  for (double n : {1.0, 4.0}) CHECK(SampleFunction::larger(a, c).at(n) == std::max(a.at(n), c.at(n)));
}
