#pragma once
// Which kernel is the fastest for each matrix product of a plan, on this machine.

#include <string>

namespace graphpipe::runtime {

/// Measures the products of the folder's products.txt, and prints it with the fastest kernel of each as kernels.txt has
/// it. Where two are close, the one of the rule (kernels/kernel_choice.h) is taken, so that another measurement seldom
/// comes to another answer. Throws RunError (kMalformedFile).
void measure_products(const std::string& folder);

}  // namespace graphpipe::runtime
