#include "runtime/kernels/kernel_choice.h"

namespace graphpipe::runtime {
namespace {

/// Below, what surrounds oneDNN's kernel costs more than the product.
constexpr int64_t kFewMultiplications = 1 << 20;

bool processor_prefers_onednn() {
#if defined(__x86_64__)
  static const bool prefers = __builtin_cpu_is("amd") != 0 && __builtin_cpu_supports("avx512f") != 0;
  return prefers;
#else
  return false;
#endif
}

}  // namespace

ProductKernel choose_product_kernel(const ProductShape& shape) {
  const bool is_large = shape.rows * shape.inner * shape.columns >= kFewMultiplications;
  return is_large && processor_prefers_onednn() ? ProductKernel::kOneDnn : ProductKernel::kBlas;
}

}  // namespace graphpipe::runtime
