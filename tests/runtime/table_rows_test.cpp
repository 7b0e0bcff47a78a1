#include "runtime/kernels/table_rows.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <c10/core/InferenceMode.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "runtime/add_share.h"
#include "runtime/optimizers/optimizer.h"
#include "runtime/optimizers/registry.h"
#include "runtime/optimizers/update_settings.h"
#include "tests/runtime/two_stage_plan.h"

namespace graphpipe::runtime {
namespace {

using test::waves;

constexpr int64_t kRows = 40, kWidth = 3;

at::Tensor ids(const std::vector<int64_t>& numbers) {
  at::Tensor tensor = at::empty({std::ssize(numbers)}, at::TensorOptions(at::kLong));
  std::ranges::copy(numbers, tensor.mutable_data_ptr<int64_t>());
  return tensor;
}

at::Tensor gradient_of(const at::Tensor& indices, int64_t seed) {
  return waves({indices.numel(), kWidth}, static_cast<double>(seed));
}

// PyTorch's gradient of nn.Embedding.
at::Tensor reference(const at::Tensor& indices, int64_t seed, int64_t padding_row) {
  return at::embedding_dense_backward(gradient_of(indices, seed), indices.remainder(kRows), kRows, padding_row, false);
}

struct Shares {
  std::vector<at::Tensor> indices;
  int64_t padding_row = -1;
};

at::Tensor summed(const Shares& shares) {
  at::Tensor sum;
  for (size_t i = 0; i < shares.indices.size(); ++i)
    add_table_rows(sum, gradient_of(shares.indices[i], std::ssize(shares.indices) + static_cast<int64_t>(i)),
                   shares.indices[i], {kRows, kWidth}, shares.padding_row);
  return sum;
}

at::Tensor expected(const Shares& shares) {
  at::Tensor sum;
  for (size_t i = 0; i < shares.indices.size(); ++i)
    add_share(sum,
              reference(shares.indices[i], std::ssize(shares.indices) + static_cast<int64_t>(i), shares.padding_row));
  return sum;
}

}  // namespace

TEST_CASE("the gradient of a table by rows is PyTorch's of an embedding") {
  const c10::InferenceMode no_autograd;
  for (const Shares& shares :
       {Shares{{ids({7})}}, Shares{{ids({3, 3, -1, 0})}}, Shares{{ids({5, 9, 5}), ids({-31, 2})}},
        Shares{{ids({1, 2, 1}), ids({2})}, 1}, Shares{{ids({4, 4, 4})}, 4}}) {
    const at::Tensor sum = summed(shares);
    CHECK(sum.is_sparse());
    CHECK(at::allclose(dense_gradient(sum), expected(shares), 1e-6, 1e-7));
  }
}

TEST_CASE("a sparse gradient holds as many rows as there were look-ups, ascending and each once") {
  const c10::InferenceMode no_autograd;
  const at::Tensor twice = summed({{ids({0, 5, 5, 0}), ids({2, 5})}});
  CHECK(at::equal(stored_rows(twice), ids({0, 1, 2, 3, 4, 5})));
  CHECK(twice.is_coalesced());
  CHECK(stored_elements(twice).sizes() == at::IntArrayRef({6, kWidth}));
  std::vector<at::Tensor> many(10, ids({1, 2, 3, 4, 5, 6, 7, 8}));
  CHECK(stored_rows(summed({many})).numel() == kRows);
}

TEST_CASE("where most rows are looked up the gradient is dense, and has the same bits") {
  const c10::InferenceMode no_autograd;
  std::vector<int64_t> all;
  for (int64_t i = 0; i < 2 * kRows; ++i) all.push_back(i * 7 % kRows);
  const at::Tensor dense = summed({{ids(all)}});
  CHECK_FALSE(dense.is_sparse());
  CHECK(at::equal(dense, reference(ids(all), 1, -1)));
  // Look-ups one by one come to the same sums.
  const at::Tensor gradient = gradient_of(ids(all), 1);
  at::Tensor sum;
  for (int64_t i = 0; i < std::ssize(all); ++i)
    add_table_rows(sum, gradient.narrow(0, i, 1), ids({all[static_cast<size_t>(i)]}), {kRows, kWidth}, -1);
  CHECK(at::equal(dense_gradient(sum), dense));
}

TEST_CASE("a dense share makes a sparse sum dense") {
  const c10::InferenceMode no_autograd;
  at::Tensor sum = summed({{ids({1, 3})}});
  const at::Tensor before = dense_gradient(sum);
  add_share(sum, waves({kRows, kWidth}, 4));
  CHECK_FALSE(sum.is_sparse());
  CHECK(at::equal(sum, before.add(waves({kRows, kWidth}, 4))));
}

TEST_CASE("updates that take rows come to the weights and states of dense gradients") {
  const c10::InferenceMode no_autograd;
  int taken = 0;
  for (const UpdateRule& rule : update_rules()) {
    for (const double decay : {0.0, 0.1}) {
      for (const double momentum : {0.0, 0.9}) {
        CAPTURE(rule.name);
        const wire::OptimizerOptions options{.momentum = momentum, .weight_decay = decay};
        const UpdateSettings settings = update_settings(rule.name, options);
        const UpdateTerms terms = settings.terms_of("w", 2, true);
        Optimizer by_rows(rule.name, {terms}), dense(rule.name, {terms});
        at::Tensor first = waves({kRows, kWidth}, 9), second = first.clone();
        if (!by_rows.takes_rows(0, first)) continue;
        ++taken;
        for (const at::Tensor& looked_up : {ids({3, 8, 3}), ids({8, 30}), ids({0})}) {
          const at::Tensor gradient = summed({{looked_up}});
          by_rows.step(0, first, gradient);
          dense.step(0, second, dense_gradient(gradient));
        }
        CHECK(at::allclose(first, second, 1e-6, 1e-7));
        for (size_t i = 0; i < dense.state(0).size(); ++i)
          CHECK(at::allclose(by_rows.state(0)[i].tensor, dense.state(0)[i].tensor, 1e-6, 1e-7));
        CHECK_FALSE(at::equal(first, waves({kRows, kWidth}, 9)));
      }
    }
  }
  // SGD, Adagrad and Adagrad by rows; the latter two know no momentum.
  CHECK(taken == 5);
}

}  // namespace graphpipe::runtime
