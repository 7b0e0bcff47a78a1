#pragma once
// Which kernel is fastest for each matrix product and convolution of a plan, on this machine.

#include <string>

namespace graphpipe::runtime {

/// Measures the products and convolutions of the folder's products.txt, and prints them with the fastest kernel of
/// each, in the format of kernels.txt. If two are close, the one of the rule (kernels/kernel_choice.h) is chosen, so
/// that another measurement rarely leads to a different answer. Throws RunError (kMalformedFile).
void measure_products(const std::string& folder);

}  // namespace graphpipe::runtime
