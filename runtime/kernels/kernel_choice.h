#pragma once
// Which library multiplies two matrices on this processor: the BLAS of LibTorch's build, or oneDNN, which is part of
// the same LibTorch. What was measured for a plan's products stands in its folder (wire/product_table.h); a rule
// decides the others.

#include <string>
#include <string_view>

#include "wire/product_table.h"

namespace graphpipe::runtime {

using wire::Product;
using wire::ProductKernel;

/// By the measured kernels, else by the rule: by the shape and the processor alone, so that all programs of a plan on
/// one kind of machine agree. The BLAS (MKL) uses half of the vector width on AMD's processors with AVX-512 but those
/// of the fourth generation, where the two are close as on others (docs/performance.md, "Kernels").
ProductKernel choose_product_kernel(const Product& product);
ProductKernel product_kernel_by_rule(const Product& product);

/// From here on the measured kernels of this text, a kernels.txt, are taken; of an empty one none, and none that was
/// measured with another number of threads than the program has. Before the first product. Throws RunError
/// (kMalformedFile).
void take_measured_kernels(std::string_view text);
/// The kernels.txt of a generated folder; empty where it has none.
std::string read_measured_kernels(const std::string& folder);

}  // namespace graphpipe::runtime
