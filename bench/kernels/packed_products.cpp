// Products of layers by BLAS, by oneDNN and by our own loops over packed operands.
//
//     taskset -c 1 build/release/bench/packed_products
//
// GFLOP/s of one core, of the fastest of several rounds, which alternate. A layer's weight is [columns, inner], as in
// nn.Linear.

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cstdio>

#include "runtime/kernels/packed_product.h"
#include "runtime/kernels/product.h"
#include "runtime/profiling/measure_rates.h"
#include "support/units.h"

using namespace graphpipe;
using runtime::ProductKernel;

namespace {

struct Layer {
  int64_t rows, inner, columns;
};
constexpr Layer kLayers[] = {{8, 1024, 1024},  {64, 128, 128},   {32, 256, 256},   {128, 256, 1024},
                             {512, 256, 256},  {512, 256, 768},  {512, 1024, 256}, {512, 768, 768},
                             {512, 768, 3072}, {512, 3072, 768}, {2048, 768, 768}};
constexpr ProductKernel kKernels[] = {ProductKernel::kBlas, ProductKernel::kOneDnn, ProductKernel::kPacked};

void print_product(const at::Tensor& a, const at::Tensor& b) {
  constexpr int kRounds = 5;
  double seconds[std::size(kKernels)];
  std::ranges::fill(seconds, kInfinity);
  for (int round = 0; round < kRounds; ++round)
    for (size_t i = 0; i < std::size(kKernels); ++i)
      seconds[i] = std::min(seconds[i], runtime::seconds_of([&] { runtime::matrix_product(kKernels[i], a, b, {}); }));
  const double flops = 2 * static_cast<double>(a.size(0) * a.size(1)) * static_cast<double>(b.size(1));
  const char* separator = " ";
  for (const double each : seconds) {
    std::printf("%s%.0f", separator, flops / each / 1e9);
    separator = ", ";
  }
  std::printf(" |");
  std::fflush(stdout);
}

}  // namespace

int main() {
  const c10::InferenceMode no_autograd;
  at::set_num_threads(1);
  if (!runtime::has_packed_product()) {
    std::fputs("this processor has no AVX2, which our loops need\n", stderr);
    return 1;
  }
  std::printf(
      "| rows x inner x columns | forward: BLAS, oneDNN, ours | input gradient | weight gradient |\n"
      "|---|---|---|---|\n");
  for (const auto& [rows, inner, columns] : kLayers) {
    const at::Tensor x = at::randn({rows, inner}), weight = at::randn({columns, inner}),
                     gradient = at::randn({rows, columns});
    std::printf("| %ldx%ldx%ld |", static_cast<long>(rows), static_cast<long>(inner), static_cast<long>(columns));
    print_product(x, weight.t());
    print_product(gradient, weight);
    print_product(gradient.t(), x);
    std::printf("\n");
  }
  return 0;
}
