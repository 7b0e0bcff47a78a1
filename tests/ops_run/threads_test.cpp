// Our own loops with several threads. Sums over the heads that share one of k may have another order then; all else has
// the same bits.

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <doctest/doctest.h>

#include <filesystem>
#include <functional>
#include <iterator>
#include <vector>

#include "runtime/kernels/attention.h"
#include "runtime/kernels/batch_norm.h"
#include "runtime/kernels/cross_entropy.h"
#include "runtime/kernels/gelu.h"
#include "runtime/kernels/max_pool.h"
#include "runtime/kernels/packed_product.h"
#include "runtime/kernels/product.h"
#include "runtime/kernels/rms_norm.h"
#include "runtime/kernels/rotary.h"
#include "runtime/kernels/sum_rows.h"
#include "runtime/random.h"
#include "tests/ops_run/drawn.h"

namespace graphpipe::runtime {
namespace {

class Threads {
 public:
  explicit Threads(int count) { at::set_num_threads(count); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
  ~Threads() { at::set_num_threads(before_); }

 private:
  const int before_ = at::get_num_threads();
};

using Results = std::vector<at::Tensor>;

Results with_threads(int count, const std::function<Results()>& compute) {
  const Threads threads(count);
  return compute();
}

void check_same_bits(const std::function<Results()>& compute) {
  const Results one = with_threads(1, compute), many = with_threads(3, compute);
  for (size_t i = 0; i < one.size(); ++i) CHECK(one[i].equal(many[i]));
}

}  // namespace

#if defined(__GNUC__) && !defined(__clang__)
TEST_CASE("our own loops run on the threads of --threads") {
  const auto threads_of_process = [] {
    namespace fs = std::filesystem;
    return std::distance(fs::directory_iterator("/proc/self/task"), fs::directory_iterator());
  };
  const auto running = threads_of_process();
  const Threads more(static_cast<int>(running) + 3);  // than any loop before had
  batch_norm(at::ones({64, 64, 32}), at::ones({64}), at::zeros({64}), {}, {}, 0.1, 1e-5);
  CHECK(threads_of_process() >= running + 2);
}
#endif

TEST_CASE(
    "the number of threads changes no bit of norms, activations, pools, rotations, losses, products and random "
    "numbers") {
  const c10::InferenceMode no_autograd;
  const at::Tensor x = drawn({8, 16, 96, 64}, 1), gradient = drawn({8, 16, 96, 64}, 2);
  check_same_bits([&] { return Results{runtime::gelu(x), runtime::gelu_gradient(gradient, x)}; });
  check_same_bits([&] {
    const at::Tensor scale = drawn({64}, 3);
    const auto [result, inverse] = rms_norm(x, scale, 1, 1e-5);
    return Results{result, inverse, rms_norm_input_gradient(gradient, x, inverse, scale)};
  });
  check_same_bits([&] {
    const at::Tensor cosine = drawn({96, 64}, 4), sine = drawn({96, 64}, 5);
    return Results{rotary(x, cosine, sine), rotary_gradient(gradient, cosine, sine)};
  });
  check_same_bits([&] {
    const std::vector<int64_t> window = {3, 3}, two = {2, 2}, one = {1, 1};
    const auto [maxima, places] = max_pool_2d(x, window, two, one, one, false);
    return Results{maxima, places};
  });
  check_same_bits([&] {
    const at::Tensor scale = drawn({16}, 6), bias = drawn({16}, 7);
    const auto [result, mean, inverse] = batch_norm(x, scale, bias, {}, {}, 0.1, 1e-5);
    const auto [of_x, of_scale, of_bias] =
        batch_norm_backward(gradient, x, scale, mean, inverse, 1e-5, {true, true, true});
    return Results{result, mean, inverse, of_x, of_scale, of_bias};
  });
  check_same_bits([&] {
    const at::Tensor labels = at::arange(x.numel() / 64, at::kLong).remainder(64).view({8, 16, 96});
    const auto [loss, sums] = cross_entropy_sum(x, labels, 3, {});
    const at::Tensor of_middle = labels.narrow(2, 0, 1).expand({8, 16, 64}).remainder(96).contiguous();
    const auto [other, other_sums] = cross_entropy_sum(x, of_middle, 2, {});
    return Results{loss,  sums,       cross_entropy_gradient(x, sums, labels, at::ones({}), 3, {}),
                   other, other_sums, cross_entropy_gradient(x, other_sums, of_middle, at::ones({}), 2, {})};
  });
  check_same_bits([&] { return Results{sum_leading_axes(x, 1), sum_leading_axes(x, 3)}; });
  if (has_packed_product())
    check_same_bits([&] {
      const at::Tensor a = drawn({300, 500}, 8), b = drawn({500, 200}, 9);
      return Results{matrix_product(ProductKernel::kPacked, a, b, {}),
                     matrix_product(ProductKernel::kPacked, b.t(), a.t(), {})};
    });
  check_same_bits([&] {
    return Results{dropout_mask(x, {.batch_axis = 0, .rows_per_sample = 1}, 0.3, {.seed = 1, .step = 2, .node = 3})};
  });
}

TEST_CASE("attention on several threads is that on one, with heads of k and v that are shared too") {
  const c10::InferenceMode no_autograd;
  for (const int64_t heads : {8, 2}) {
    const at::Tensor q = drawn({2, 8, 80, 32}, 1), k = drawn({2, heads, 80, 32}, 2), v = drawn({2, heads, 80, 32}, 3);
    const at::Tensor gradient = drawn({2, 8, 80, 32}, 4);
    const auto compute = [&] {
      const auto [result, rows] = attention(q, k, v, {}, /*causal=*/true, 0.2);
      const auto [of_q, of_k, of_v] = attention_gradient(gradient, q, k, v, result, rows, {}, /*causal=*/true, 0.2);
      return Results{result, rows, of_q, of_k, of_v};
    };
    const Results one = with_threads(1, compute), few = with_threads(3, compute), many = with_threads(7, compute);
    for (size_t i = 0; i < one.size(); ++i) {
      CHECK(one[i].equal(few[i]));
      CHECK(one[i].allclose(many[i], 1e-5, 1e-5));
    }
  }
}

}  // namespace graphpipe::runtime
