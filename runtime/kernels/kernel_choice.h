#pragma once
// Which library multiplies two matrices on this processor: the BLAS of LibTorch's build, or oneDNN, which is part of
// the same LibTorch.

#include <cstdint>

namespace graphpipe::runtime {

enum class ProductKernel : uint8_t { kBlas, kOneDnn };

/// [rows, inner] times [inner, columns].
struct ProductShape {
  int64_t rows = 0, inner = 0, columns = 0;
};

/// A function of the shape and the processor alone, so that all programs of a plan on one kind of machine agree. The
/// BLAS (MKL) uses half of the vector width on AMD's processors with AVX-512, where oneDNN takes about half of its
/// time; on others the two are close (docs/performance.md, "Kernels").
ProductKernel choose_product_kernel(const ProductShape& shape);

}  // namespace graphpipe::runtime
