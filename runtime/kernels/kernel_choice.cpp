#include "runtime/kernels/kernel_choice.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <vector>

#include "runtime/error.h"

namespace graphpipe::runtime {
namespace {

bool processor_prefers_onednn() {
#if defined(__x86_64__)
  static const bool prefers = __builtin_cpu_is("amd") != 0 && __builtin_cpu_supports("avx512f") != 0;
  return prefers;
#else
  return false;
#endif
}

/// Ascending; written before the program computes.
std::vector<wire::TimedProduct>& measured() {
  static std::vector<wire::TimedProduct> products;
  return products;
}

}  // namespace

ProductKernel product_kernel_by_rule(const Product& product) {
  return wire::is_worth_measuring(product) && processor_prefers_onednn() ? ProductKernel::kOneDnn
                                                                         : ProductKernel::kBlas;
}

ProductKernel choose_product_kernel(const Product& product) {
  const std::vector<wire::TimedProduct>& known = measured();
  const auto found = std::ranges::lower_bound(known, product, {}, &wire::TimedProduct::product);
  const bool is_known = found != known.end() && found->product == product && found->kernel;
  return is_known ? *found->kernel : product_kernel_by_rule(product);
}

void take_measured_kernels(std::string_view text) {
  measured().clear();
  if (text.empty()) return;
  std::optional<wire::ProductTable> table = wire::parse_product_table(text);
  if (!table)
    fail(Code::kMalformedFile, "kernels.txt of the folder is no table of products and their kernels",
         "delete it and run `graphpipe build` again");
  if (table->threads == at::get_num_threads()) measured() = std::move(table->products);
}

std::string read_measured_kernels(const std::string& folder) {
  std::ifstream file(folder + "/" + std::string(wire::kKernelsFile), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace graphpipe::runtime
