#pragma once
// Single numbers, on which LibTorch's operators spend a hundred times as long as the processor.

namespace at {
class Tensor;
}

namespace graphpipe::runtime {

/// x times the factor, in the place of x. Both have one element.
at::Tensor scale_number_(const at::Tensor& x, const at::Tensor& factor);

}  // namespace graphpipe::runtime
