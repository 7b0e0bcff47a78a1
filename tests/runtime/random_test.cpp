#include "runtime/random.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>

#include <cmath>

namespace graphpipe::runtime {
namespace {

at::Tensor like(std::initializer_list<int64_t> sizes) { return at::zeros(at::IntArrayRef(sizes), at::kFloat); }

constexpr RandomKey kKey{.seed = 7, .step = 3, .node = 12, .first_sample = 5};

RandomKey at_sample(int64_t first_sample) {
  RandomKey key = kKey;
  key.first_sample = first_sample;
  return key;
}

}  // namespace

TEST_CASE("a slice of the samples gets the numbers that the whole gives it, on any axis") {
  const at::Tensor whole0 = random_uniform(like({6, 5, 3}), {0, 1}, 0, 1, at_sample(10));
  const at::Tensor whole1 = random_uniform(like({5, 6, 3}), {1, 1}, 0, 1, at_sample(10));
  const at::Tensor rows = random_uniform(like({6 * 4, 3}), {0, 4}, 0, 1, at_sample(10));
  for (const int64_t cut : {1, 2, 5}) {
    CAPTURE(cut);
    CHECK(at::equal(whole0.narrow(0, cut, 6 - cut),
                    random_uniform(like({6 - cut, 5, 3}), {0, 1}, 0, 1, at_sample(10 + cut))));
    CHECK(at::equal(whole1.narrow(1, cut, 6 - cut),
                    random_uniform(like({5, 6 - cut, 3}), {1, 1}, 0, 1, at_sample(10 + cut))));
    CHECK(at::equal(rows.narrow(0, 4 * cut, 4 * (6 - cut)),
                    random_uniform(like({4 * (6 - cut), 3}), {0, 4}, 0, 1, at_sample(10 + cut))));
  }
}

TEST_CASE("seed, step, node and sample each change the numbers") {
  const at::Tensor base = random_uniform(like({64}), {0, 64}, 0, 1, kKey);
  CHECK(at::equal(base, random_uniform(like({64}), {0, 64}, 0, 1, kKey)));
  RandomKey other = kKey;
  other.seed = 8;
  CHECK(!at::equal(base, random_uniform(like({64}), {0, 64}, 0, 1, other)));
  other = kKey;
  other.step = 4;
  CHECK(!at::equal(base, random_uniform(like({64}), {0, 64}, 0, 1, other)));
  other = kKey;
  other.node = 13;
  CHECK(!at::equal(base, random_uniform(like({64}), {0, 64}, 0, 1, other)));
  CHECK(!at::equal(base, random_uniform(like({64}), {0, 64}, 0, 1, at_sample(6))));
}

TEST_CASE("a step on the device takes the place of the step") {
  const int64_t step = 3;
  RandomKey other = kKey;
  other.step = 4;
  other.step_on_device = &step;
  CHECK(at::equal(random_uniform(like({64}), {0, 64}, 0, 1, kKey), random_uniform(like({64}), {0, 64}, 0, 1, other)));
}

TEST_CASE("a tensor without samples is the same for all of them, one that mixes them is not") {
  const SampleLayout same{-1, 0}, mixed{-1, 1};
  CHECK(at::equal(random_uniform(like({9}), same, 0, 1, at_sample(0)), random_uniform(like({9}), same, 0, 1, kKey)));
  CHECK(!at::equal(random_uniform(like({9}), mixed, 0, 1, at_sample(0)), random_uniform(like({9}), mixed, 0, 1, kKey)));
}

TEST_CASE("a dropout mask keeps the expected share and the expected sum") {
  const at::Tensor mask = dropout_mask(like({100, 1000}), {0, 1}, 0.25, kKey);
  const double kept = mask.ne(0).to(at::kDouble).mean().item<double>();
  CHECK(std::abs(kept - 0.75) < 0.01);
  CHECK(std::abs(mask.to(at::kDouble).mean().item<double>() - 1) < 0.01);
  CHECK(mask.max().item<float>() == static_cast<float>(1 / 0.75));
  CHECK(dropout_mask(like({10, 10}), {0, 1}, 0, kKey).eq(1).all().item<bool>());
  CHECK(dropout_mask(like({10, 10}), {0, 1}, 1, kKey).eq(0).all().item<bool>());
}

TEST_CASE("uniform and normal numbers have their moments and range") {
  const at::Tensor uniform = random_uniform(like({100, 1000}), {0, 1}, -1, 3, kKey).to(at::kDouble);
  CHECK(uniform.min().item<double>() >= -1);
  CHECK(uniform.max().item<double>() < 3);
  CHECK(std::abs(uniform.mean().item<double>() - 1) < 0.02);
  CHECK(std::abs(uniform.var().item<double>() - 16.0 / 12) < 0.02);
  const at::Tensor normal = random_normal(like({100, 1001}), {0, 1}, 2, 0.5, kKey).to(at::kDouble);
  CHECK(std::abs(normal.mean().item<double>() - 2) < 0.01);
  CHECK(std::abs(normal.var().item<double>() - 0.25) < 0.01);
}

TEST_CASE("uniform numbers fall into equal parts equally often, and neighbours do not depend on each other") {
  constexpr int64_t kParts = 64, kDraws = 128'000;
  const at::Tensor uniform = random_uniform(like({kDraws / 4, 4}), {0, 1}, 0, 1, kKey).reshape({-1});
  const at::Tensor part = uniform.mul(kParts).floor().to(at::kLong);
  // Of 63 degrees of freedom: more than 120, or less than 25, comes once in 100,000 seeds.
  const auto chi_square = [](const at::Tensor& counts, double expected) {
    return counts.to(at::kDouble).sub(expected).square().sum().item<double>() / expected;
  };
  const double spread = chi_square(part.bincount({}, kParts), static_cast<double>(kDraws) / kParts);
  CHECK(spread > 25);
  CHECK(spread < 120);
  const at::Tensor eighth = uniform.mul(8).floor().to(at::kLong);
  const at::Tensor pairs = eighth.narrow(0, 0, kDraws - 1).mul(8).add(eighth.narrow(0, 1, kDraws - 1));
  const double together = chi_square(pairs.bincount({}, kParts), static_cast<double>(kDraws - 1) / kParts);
  CHECK(together > 25);
  CHECK(together < 120);
}

TEST_CASE("a Bernoulli draw is one as often as its probability says, always at 1 and never at 0") {
  // As the dictionary writes it: a uniform number of 32 bits is less than the probability.
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    CAPTURE(static_cast<int>(type));
    for (const double probability : {0.0, 0.125, 0.5, 0.75, 1.0}) {
      CAPTURE(probability);
      const at::Tensor p = at::zeros({1000, 100}, type).add(probability);
      const at::Tensor as_drawn = type == at::kDouble ? p : p.to(at::kFloat);
      const at::Tensor draws = random_uniform(as_drawn, {0, 1}, 0, 1, kKey).lt(p).to(at::kDouble);
      const double share = draws.mean().item<double>();
      const double deviation = std::sqrt(probability * (1 - probability) / 1e5);
      CHECK(std::abs(share - probability) <= 4.5 * deviation);
      CHECK(at::equal(draws, random_uniform(as_drawn, {0, 1}, 0, 1, kKey).lt(p).to(at::kDouble)));
    }
  }
}

TEST_CASE("an empty tensor is drawn without complaint") {
  CHECK(dropout_mask(like({0, 3}), {0, 1}, 0.5, kKey).numel() == 0);
}

}  // namespace graphpipe::runtime
