#pragma once
// What multiplies two matrices on this processor: the BLAS of LibTorch's build, oneDNN, which is part of the same
// LibTorch, or our own loops (packed_product.h); and by what method a convolution is computed. Measurements for a
// plan's products and convolutions are stored in its folder (wire/product_table.h); a rule decides for all others.

#include <string>
#include <string_view>

#include "wire/product_table.h"

namespace graphpipe::runtime {

using wire::ConvolutionKernel;
using wire::Product;
using wire::ProductKernel;

/// Uses the measured kernels if they list the product, otherwise the rule: it depends only on the shape and the
/// processor, so that all programs of a plan on one kind of machine agree. The BLAS (MKL) uses AVX2 on AMD processors:
/// our own loops are faster there. In large products of the fifth generation oneDNN is faster than BLAS
/// (docs/performance.md, "Kernels"), and our loops have not been measured.
ProductKernel choose_product_kernel(const Product& product);
ProductKernel product_kernel_by_rule(const Product& product);

/// Of a convolution that fits Winograd's method (wire::fits_winograd), likewise. The rule takes it wherever the
/// processor has what it needs, with large tiles where they fit; but not for the weights of three channels or fewer, as
/// of a picture, nor with small tiles for few channels where LibTorch's vectors are wider than those of the transforms.
ConvolutionKernel choose_convolution_kernel(const wire::Convolution& of);
ConvolutionKernel convolution_kernel_by_rule(const wire::Convolution& of);

/// From here on uses the measured kernels of this text, a kernels.txt; none if it is empty, and none that were measured
/// with a different number of threads than the program has. Call before the first product. Throws RunError
/// (kMalformedFile; kUsage where this processor lacks what a kernel needs).
void take_measured_kernels(std::string_view text);
/// The kernels.txt of a generated folder; empty if it has none.
std::string read_measured_kernels(const std::string& folder);

}  // namespace graphpipe::runtime
