// The gradient of attention's mask, by runtime/kernels/attention.h.

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <c10/core/InferenceMode.h>
#include <doctest/doctest.h>

#include <vector>

#include "runtime/kernels/attention.h"
#include "tests/ops_run/differences.h"
#include "tests/ops_run/drawn.h"

namespace graphpipe::runtime {

TEST_CASE("the gradient of a mask has its shape, and the number of threads changes no bit of it") {
  const c10::InferenceMode no_autograd;
  const at::Tensor q = drawn({2, 6, 150, 24}, 51), k = drawn({2, 2, 90, 24}, 52), v = drawn({2, 2, 90, 24}, 53);
  const at::Tensor of_result = drawn({2, 6, 150, 24}, 54);
  const int before = at::get_num_threads();
  const std::vector<std::vector<int64_t>> shapes = {{90}, {150, 90}, {6, 150, 1}, {2, 1, 1, 90}, {2, 6, 150, 90}};
  for (const std::vector<int64_t>& shape : shapes) {
    CAPTURE(shape.size());
    const at::Tensor mask = drawn(shape, 55);
    const auto gradient = [&](at::ScalarType type) {
      const auto of = [&](const at::Tensor& x) { return x.to(type); };
      const auto [result, rows] = runtime::attention(of(q), of(k), of(v), of(mask), false, 0.2);
      return runtime::attention_mask_gradient(of(of_result), of(q), of(k), of(v), result, rows, of(mask), false, 0.2);
    };
    at::set_num_threads(1);
    const at::Tensor of_one = gradient(at::kFloat);
    at::set_num_threads(3);
    const at::Tensor of_three = gradient(at::kFloat);
    at::set_num_threads(before);
    CHECK(of_one.sizes() == mask.sizes());
    CHECK(of_one.equal(of_three));
    CHECK(largest_difference(of_one, gradient(at::kDouble)) < 1e-4);
  }
}

}  // namespace graphpipe::runtime
