#include "runtime/kernels/kernel_choice.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <vector>

#include "runtime/error.h"
#include "runtime/kernels/packed_product.h"
#include "runtime/kernels/vector_loops.h"
#include "runtime/kernels/winograd.h"

namespace graphpipe::runtime {
namespace {

/// Of products that are worth a measurement, and of smaller ones.
struct Preference {
  ProductKernel large = ProductKernel::kBlas, small = ProductKernel::kBlas;
};

Preference processor_preference() {
  Preference prefers;
#if defined(__x86_64__)
  if (__builtin_cpu_is("amd") == 0 || !has_packed_product()) return prefers;
  // Families up to 19h are the generations up to the fourth.
  const bool is_later = __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_is("amdfam19h") == 0;
  prefers.large = is_later ? ProductKernel::kOneDnn : ProductKernel::kPacked;
  prefers.small = ProductKernel::kPacked;
#endif
  return prefers;
}

/// Written before the program computes.
wire::ProductTable& measured() {
  static wire::ProductTable table;
  return table;
}

template <typename Work, typename Kernel>
Kernel choose(const std::vector<wire::Timed<Work, Kernel>>& known, const Work& work, Kernel by_rule) {
  const auto found = std::ranges::lower_bound(known, work, {}, &wire::Timed<Work, Kernel>::work);
  return found != known.end() && found->work == work ? found->kernel.value_or(by_rule) : by_rule;
}

}  // namespace

ProductKernel product_kernel_by_rule(const Product& product) {
  static const Preference preference = processor_preference();
  return wire::is_worth_measuring(product) ? preference.large : preference.small;
}

ProductKernel choose_product_kernel(const Product& product) {
  return choose(measured().products, product, product_kernel_by_rule(product));
}

ConvolutionKernel convolution_kernel_by_rule(const wire::Convolution& of) {
  constexpr int64_t kManyChannels = 64, kFewChannels = 4;
  using enum ConvolutionKernel;
  const bool makes_few_weights = of.pass == wire::ConvolutionPass::kWeightGradient && of.channels < kFewChannels;
  if (!has_winograd() || makes_few_weights) return kDirect;
  if (wire::fits_kernel(of, kWinograd4)) return kWinograd4;
  const bool is_fast = !has_avx512() || std::min(of.channels, of.results) >= kManyChannels || !is_worth_measuring(of);
  return is_fast ? kWinograd2 : kDirect;
}

ConvolutionKernel choose_convolution_kernel(const wire::Convolution& of) {
  return choose(measured().convolutions, of, convolution_kernel_by_rule(of));
}

void take_measured_kernels(std::string_view text) {
  measured() = {};
  if (text.empty()) return;
  std::string problem;
  std::optional<wire::ProductTable> table = wire::parse_product_table(text, problem);
  if (!table)
    fail(Code::kMalformedFile, graphpipe::text("kernels.txt of the folder: ", problem),
         "correct the line, or delete the file and run `graphpipe build` again");
  const auto is_winograd = [](const wire::TimedConvolution& each) {
    return each.kernel && each.kernel != ConvolutionKernel::kDirect;
  };
  const auto is_packed = [](const wire::TimedProduct& each) { return each.kernel == ProductKernel::kPacked; };
  if ((!has_winograd() && std::ranges::any_of(table->convolutions, is_winograd)) ||
      (!has_packed_product() && std::ranges::any_of(table->products, is_packed)))
    fail(Code::kUsage, "the kernels of this plan were measured on a processor with AVX2, which this one lacks",
         "delete kernels.txt in the folder of rank 0, or start all ranks on processors that have it");
  if (table->threads == at::get_num_threads()) measured() = std::move(*table);
}

std::string read_measured_kernels(const std::string& folder) {
  std::ifstream file(folder + "/" + std::string(wire::kKernelsFile), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace graphpipe::runtime
