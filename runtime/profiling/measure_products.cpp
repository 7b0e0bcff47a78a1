#include "runtime/profiling/measure_products.h"

#include <ATen/ops/ones.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <vector>

#include "runtime/error.h"
#include "runtime/kernels/convolution.h"
#include "runtime/kernels/kernel_choice.h"
#include "runtime/kernels/packed_product.h"
#include "runtime/kernels/product.h"
#include "runtime/kernels/winograd.h"
#include "runtime/profiling/measure_rates.h"
#include "support/units.h"

namespace graphpipe::runtime {
namespace {

/// Relative to the time of the rule's kernel: a smaller gain is taken for noise.
constexpr double kMuchFaster = 0.93;
/// Rounds of the kernels alternate, so that all see the same background load.
constexpr int kAlternations = 3;
/// What is measured of larger ones: a kernel is as fast on the rest, and a head of 150,000 tokens would take a minute.
constexpr double kEnoughFlops = 4e9;

at::Tensor operand(int64_t rows, int64_t columns, bool transposed) {
  return transposed ? at::ones({columns, rows}).t() : at::ones({rows, columns});
}

/// The fastest of kernels that `run` runs; the first, which is the rule's, unless another is much faster.
template <typename Kernel>
Kernel fastest(const std::vector<Kernel>& kernels, const auto& run) {
  std::vector<double> seconds(kernels.size(), kInfinity);
  for (int i = 0; i < kAlternations; ++i)
    for (size_t k = 0; k < kernels.size(); ++k) seconds[k] = std::min(seconds[k], seconds_of([&] { run(kernels[k]); }));
  const size_t best = static_cast<size_t>(std::ranges::min_element(seconds) - seconds.begin());
  return kernels[seconds[best] < kMuchFaster * seconds.front() ? best : 0];
}

/// The longest sides are halved, and stay multiples of a vector where they are.
Product part_of(Product product) {
  constexpr int64_t kVector = 16;
  const auto flops = [&] {
    return 2 * static_cast<double>(product.rows * product.inner) * static_cast<double>(product.columns);
  };
  while (flops() > kEnoughFlops) {
    int64_t& longest = *std::ranges::max({&product.rows, &product.inner, &product.columns}, {},
                                         [](const int64_t* side) { return *side; });
    longest = longest % kVector == 0 ? longest / 2 / kVector * kVector : longest / 2;
  }
  return product;
}

/// Fewer samples, but so many places that transforms of the weights are as small a part of the time as of all.
wire::Convolution part_of(wire::Convolution of) {
  constexpr double kWindow = 9;  // those that may be Winograd's are 3x3
  constexpr int64_t kEnoughPlaces = 1024;
  const int64_t places = of.result_height() * of.result_width();
  const double flops = 2 * kWindow * static_cast<double>(of.channels * of.results) * static_cast<double>(places);
  const int64_t enough = std::max(static_cast<int64_t>(kEnoughFlops / flops), (kEnoughPlaces + places - 1) / places);
  of.samples = std::min(of.samples, enough);
  return of;
}

ProductKernel fastest_kernel(const Product& whole) {
  const Product product = part_of(whole);
  const at::Tensor a = operand(product.rows, product.inner, product.left_turned),
                   b = operand(product.inner, product.columns, product.right_turned);
  using enum ProductKernel;
  std::vector<ProductKernel> kernels = {product_kernel_by_rule(whole)};
  for (const ProductKernel other : {kBlas, kOneDnn, kPacked})
    if (other != kernels.front() && (other != kPacked || has_packed_product())) kernels.push_back(other);
  return fastest(kernels, [&](ProductKernel kernel) { matrix_product(kernel, a, b, {}); });
}

ConvolutionKernel fastest_kernel(const wire::Convolution& of) {
  using enum ConvolutionKernel;
  if (!has_winograd()) return kDirect;
  std::vector<ConvolutionKernel> kernels = {convolution_kernel_by_rule(of)};
  for (const ConvolutionKernel other : {kDirect, kWinograd2, kWinograd4})
    if (other != kernels.front() && wire::fits_kernel(of, other)) kernels.push_back(other);
  const MeasuredConvolution pass(part_of(of));
  return fastest(kernels, [&](ConvolutionKernel kernel) { pass.run(kernel); });
}

}  // namespace

void measure_products(const std::string& folder) {
  std::ifstream file(folder + "/" + std::string(wire::kProductsFile), std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  std::optional<wire::ProductTable> table = wire::parse_product_table(text);
  if (!table)
    fail(Code::kMalformedFile, "products.txt of the folder is no table of products and convolutions",
         "generate it again");
  for (auto& [product, kernel] : table->products) kernel = fastest_kernel(product);
  for (auto& [of, kernel] : table->convolutions) kernel = fastest_kernel(of);
  std::fputs(wire::print_product_table(*table).c_str(), stdout);
}

}  // namespace graphpipe::runtime
