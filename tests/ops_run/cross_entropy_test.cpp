// Cross entropy and its gradient, against LibTorch's in float64.

#include "runtime/kernels/cross_entropy.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/InferenceMode.h>
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "tests/ops_run/differences.h"

namespace graphpipe::runtime {
namespace {

struct Case {
  std::vector<int64_t> logits;
  int64_t axis = 1;
  std::optional<int64_t> ignored = std::nullopt;
  at::ScalarType labels = at::kLong;
  double offset = 0;  // added to all logits, which changes nothing
};

at::Tensor logits_of(const Case& each) {
  const at::Tensor drawn = at::randn(each.logits, at::make_generator<at::CPUGeneratorImpl>(1), at::kFloat);
  return drawn.mul(3).add(each.offset);
}

at::Tensor labels_of(const Case& each) {
  std::vector<int64_t> sizes = each.logits;
  sizes.erase(sizes.begin() + each.axis);
  return at::randint(each.logits[static_cast<size_t>(each.axis)], sizes, at::make_generator<at::CPUGeneratorImpl>(2),
                     each.labels);
}

struct Expected {
  at::Tensor loss, gradient;
};

/// By the definition, in float64.
Expected expected(const Case& each, const at::Tensor& logits, const at::Tensor& labels, double factor) {
  const at::Tensor index = labels.to(at::kLong).unsqueeze(each.axis);
  const at::Tensor counted = each.ignored ? index.ne(*each.ignored) : at::ones_like(index, at::kBool);
  const at::Tensor known = index.masked_fill(counted.logical_not(), 0), wide = logits.to(at::kDouble);
  const at::Tensor log_probabilities = at::log_softmax(wide, each.axis);
  const at::Tensor own = at::zeros_like(wide).scatter(each.axis, known, 1.0);
  return {log_probabilities.gather(each.axis, known).neg().mul(counted).sum(),
          log_probabilities.exp().sub(own).mul(counted).mul(factor)};
}

const Case kCases[] = {
    {.logits = {3, 5}},
    {.logits = {9, 16}, .ignored = 4},
    {.logits = {7, 1003}, .ignored = 1000, .offset = 500},
    {.logits = {2, 6, 50}, .axis = 2, .ignored = -100, .labels = at::kInt},
    {.logits = {2, 7, 5, 9}, .ignored = 3, .offset = -500},
    {.logits = {4, 3, 16}, .labels = at::kInt},
    {.logits = {6, 5, 4}, .axis = 0, .ignored = 2},
    {.logits = {5, 1}},
};

}  // namespace

TEST_CASE("cross entropy and its gradient are those of float64, along any axis, with labels that do not count") {
  const c10::InferenceMode no_autograd;
  const at::Tensor factor = at::full({}, 0.25, at::kFloat);
  for (const Case& each : kCases) {
    CAPTURE(at::IntArrayRef(each.logits));
    const at::Tensor logits = logits_of(each), labels = labels_of(each);
    const Expected wanted = expected(each, logits, labels, 0.25);
    const auto [loss, sums] = cross_entropy_sum(logits, labels, each.axis, each.ignored);
    CHECK(largest_difference(loss, wanted.loss) < 1e-6 * static_cast<double>(labels.numel()));
    CHECK(sums.numel() == 2 * labels.numel());
    const at::Tensor gradient = cross_entropy_gradient(logits, sums, labels, factor, each.axis, each.ignored);
    CHECK(largest_difference(gradient, wanted.gradient) < 1e-6);
    const at::Tensor place = logits.clone();
    const at::Tensor same = cross_entropy_gradient_(place, sums, labels, factor, each.axis, each.ignored);
    CHECK(same.is_same(place));
    CHECK(same.equal(gradient));
  }
}

TEST_CASE("cross entropy of logits that lie in another order, or are a part of others, is the same") {
  const c10::InferenceMode no_autograd;
  const Case each{.logits = {6, 11, 4}, .ignored = 5};
  const at::Tensor labels = labels_of(each), logits = logits_of(each), factor = at::full({}, 0.25, at::kFloat);
  const Expected wanted = expected(each, logits, labels, 0.25);
  const at::Tensor part = at::cat({logits, logits}, 2).narrow(2, 4, 4);
  for (const at::Tensor& other : {logits.transpose(0, 2).contiguous().transpose(0, 2),
                                  logits.transpose(1, 2).contiguous().transpose(1, 2), part}) {
    CAPTURE(other.strides());
    const auto [loss, sums] = cross_entropy_sum(other, labels, 1, 5);
    CHECK(largest_difference(loss, wanted.loss) < 1e-5);
    const at::Tensor gradient = cross_entropy_gradient(other, sums, labels, factor, 1, 5);
    CHECK(largest_difference(gradient, wanted.gradient) < 1e-6);
    const at::Tensor place = other.clone();
    CHECK(cross_entropy_gradient_(place, sums, labels, factor, 1, 5).allclose(gradient, 1e-5, 1e-7));
    // Labels that lie in another order.
    CHECK(std::get<0>(cross_entropy_sum(other, labels.t().contiguous().t(), 1, 5)).equal(loss));
  }
}

TEST_CASE("what the loops do not take goes to LibTorch in parts, which bound its temporaries") {
  const c10::InferenceMode no_autograd;
  const Case large{.logits = {9, 1 << 19}};
  const at::Tensor logits = logits_of(large), labels = labels_of(large);
  const auto [ours, sums] = cross_entropy_sum(logits, labels, 1, {});
  const auto [theirs, their_sums] = cross_entropy_sum(logits.to(at::kDouble), labels, 1, {});
  CHECK(largest_difference(ours, theirs) < 2e-6 * theirs.item<double>());
  CHECK(largest_difference(sums, their_sums) < 2e-5);
}

TEST_CASE("beside large logits neither the loss of a label that is almost certain nor its gradient loses its digits") {
  const c10::InferenceMode no_autograd;
  const at::Tensor contiguous = at::full({1, 2}, 5000.0, at::kFloat);
  contiguous[0][1] = 4992.0;
  const at::Tensor labels = at::zeros({1}, at::kLong), factor = at::ones({});
  for (const at::Tensor& logits : {contiguous, at::cat({contiguous, contiguous}, 1).narrow(1, 0, 2)}) {
    const auto [loss, sums] = cross_entropy_sum(logits, labels, 1, {});
    CHECK(loss.item<double>() == doctest::Approx(std::log1p(std::exp(-8.0))).epsilon(1e-4));
    const at::Tensor gradient = cross_entropy_gradient(logits, sums, labels, factor, 1, {});
    CHECK(gradient[0][1].item<double>() == doctest::Approx(1 / (1 + std::exp(8.0))).epsilon(1e-5));
    CHECK(gradient[0][0].item<double>() == doctest::Approx(-1 / (1 + std::exp(8.0))).epsilon(1e-3));
  }
}

TEST_CASE("a class that is masked by -infinity has no gradient, and logits that are no numbers are noticed") {
  const c10::InferenceMode no_autograd;
  const at::Tensor logits = at::zeros({1, 3}, at::kFloat), labels = at::zeros({1}, at::kLong), factor = at::ones({});
  logits[0][2] = -std::numeric_limits<float>::infinity();
  const auto [loss, sums] = cross_entropy_sum(logits, labels, 1, {});
  CHECK(loss.item<double>() == doctest::Approx(std::log(2.0)));
  CHECK(cross_entropy_gradient(logits, sums, labels, factor, 1, {})[0][2].item<float>() == 0);
  for (const float bad : {NAN, INFINITY}) {
    logits[0][1] = bad;
    CHECK_FALSE(std::isfinite(std::get<0>(cross_entropy_sum(logits, labels, 1, {})).item<double>()));
  }
}

TEST_CASE("a label that is no class is refused, and one that does not count may be any number") {
  const c10::InferenceMode no_autograd;
  const at::Tensor logits = at::zeros({2, 4}, at::kFloat);
  const at::Tensor labels = at::zeros({2}, at::kLong);
  for (const int64_t wrong : {-1, 4, 1 << 20}) {
    labels[1] = wrong;
    CHECK_THROWS_AS(cross_entropy_sum(logits, labels, 1, {}), c10::IndexError);
    const auto [loss, sums] = cross_entropy_sum(logits, labels, 1, wrong);
    CHECK(loss.item<double>() == doctest::Approx(std::log(4.0)));
  }
}

}  // namespace graphpipe::runtime
