// PRelu and its gradients, in own loops and by LibTorch's operators, against their definition in float64.

#include "runtime/kernels/prelu.h"

#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/where.h>
#include <c10/core/InferenceMode.h>
#include <doctest/doctest.h>

#include <limits>
#include <vector>

#include "tests/ops_run/drawn.h"

using namespace graphpipe;
using namespace graphpipe::runtime;

namespace {

struct SlopedSizes {
  std::vector<int64_t> x, slope;
};

}  // namespace

TEST_CASE("prelu and its gradients are those of float64, for slopes of channels, of elements and of all") {
  const c10::InferenceMode no_autograd;
  for (const SlopedSizes& sizes : {SlopedSizes{{3, 5, 7, 9}, {5, 1, 1}},
                                   {{3, 5, 40, 40}, {5, 1, 1}},
                                   {{3, 5, 7}, {1}},
                                   {{3, 5, 7}, {}},
                                   {{30, 50, 70}, {1, 1}},
                                   {{70, 300}, {300}},
                                   {{2, 3, 4}, {3, 4}},
                                   {{2, 3, 4}, {3, 1}},
                                   {{2, 3, 4, 5}, {3, 1, 5}},  // apart: by LibTorch
                                   {{1, 30, 1}, {30, 1}},
                                   {{2, 3, 4}, {2, 3, 4}},
                                   {{2, 1, 33}, {1, 1}}}) {
    CAPTURE(sizes.x.size());
    CAPTURE(sizes.slope.size());
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const at::Tensor x = drawn(sizes.x, 1).to(type), slope = drawn(sizes.slope, 2).to(type),
                       gradient = drawn(sizes.x, 3).to(type);
      const at::Tensor wide_x = x.to(at::kDouble), wide_slope = slope.to(at::kDouble),
                       wide_gradient = gradient.to(at::kDouble);
      const double tolerance = type == at::kFloat ? 1e-6 : 2e-2;
      const at::Tensor positive = wide_x.gt(0.0);
      CHECK(relative_difference(runtime::prelu(x, slope), at::where(positive, wide_x, wide_x * wide_slope)) <
            tolerance);
      CHECK(relative_difference(prelu_input_gradient(gradient, x, slope),
                                at::where(positive, wide_gradient, wide_gradient * wide_slope)) < tolerance);
      const at::Tensor of_slope = prelu_slope_gradient(gradient, x, slope);
      CHECK(of_slope.sizes() == slope.sizes());
      CHECK(relative_difference(of_slope, at::sum_to(at::where(positive, 0.0, wide_gradient * wide_x), sizes.slope)) <
            tolerance);
    }
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(runtime::prelu(at::full({20}, nan), at::ones({1})).isnan().all().item().toBool());
}
