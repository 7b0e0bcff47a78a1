// Random numbers that a GPU draws are those of the CPU. On the CPU there is nothing to compare.

#include "runtime/random.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <doctest/doctest.h>

#include "tests/ops_run/test_device.h"

namespace graphpipe::runtime {
namespace {

struct DrawCase {
  std::vector<int64_t> sizes;
  SampleLayout layout;
  at::ScalarType type;
};
// Runs of whole blocks and of parts of them, several runs of a sample, several rows, tensors without samples.
const DrawCase kDraws[] = {
    {{6, 16}, {0, 1}, at::kFloat},       {{6, 5, 3}, {0, 1}, at::kFloat},  {{5, 6, 3}, {1, 1}, at::kDouble},
    {{7, 8, 4}, {1, 2}, at::kFloat},     {{24, 3}, {0, 4}, at::kBFloat16}, {{9}, {-1, 0}, at::kFloat},
    {{9}, {-1, 1}, at::kDouble},         {{1}, {-1, 1}, at::kHalf},        {{0, 3}, {0, 1}, at::kFloat},
    {{3, 700, 130}, {0, 1}, at::kFloat},
};

constexpr RandomKey kKey{.seed = 7, .step = 3, .node = 12, .first_sample = 1L << 33};

}  // namespace

TEST_CASE("a GPU draws the numbers that the CPU draws") {
  if (ops_run::device().is_host()) return;
  const c10::InferenceMode no_autograd;
  for (const auto& [sizes, layout, type] : kDraws) {
    CAPTURE(sizes.size());
    CAPTURE(layout.rows_per_sample);
    const at::Tensor on_cpu = at::zeros(sizes, type), on_gpu = ops_run::device().upload(on_cpu);
    const auto both_draw = [&](const auto& draw) {
      const at::Tensor expected = draw(on_cpu), drawn = draw(on_gpu);
      CHECK(drawn.is_cuda());
      CHECK((drawn.scalar_type() == type));
      return std::pair(expected, ops_run::device().download(drawn));
    };
    const auto [mask, gpu_mask] =
        both_draw([&](const at::Tensor& like) { return dropout_mask(like, layout, 0.3, kKey); });
    CHECK(at::equal(mask, gpu_mask));
    const auto [uniform, gpu_uniform] =
        both_draw([&](const at::Tensor& like) { return random_uniform(like, layout, -1, 3, kKey); });
    CHECK(at::equal(uniform, gpu_uniform));
    const auto [normal, gpu_normal] =
        both_draw([&](const at::Tensor& like) { return random_normal(like, layout, 0.5, 2, kKey); });
    CHECK(at::allclose(normal, gpu_normal, 1e-5, 1e-6));
  }
}

TEST_CASE("a GPU reads the step in its memory") {
  if (ops_run::device().is_host()) return;
  const c10::InferenceMode no_autograd;
  const at::Tensor like = ops_run::device().upload(at::zeros({4, 33}));
  const at::Tensor step = ops_run::device().upload(at::full({}, int64_t{3}, at::kLong));
  RandomKey key = kKey;
  key.step = 4;
  const at::Tensor other = dropout_mask(like, {0, 1}, 0.5, key);
  key.step_on_device = step.const_data_ptr<int64_t>();
  CHECK(at::equal(dropout_mask(like, {0, 1}, 0.5, key), dropout_mask(like, {0, 1}, 0.5, kKey)));
  CHECK(!at::equal(dropout_mask(like, {0, 1}, 0.5, key), other));
}

}  // namespace graphpipe::runtime
