#pragma once
// The places that a mask picks in each sample, numbered: masked_scatter.

#include <cstdint>

namespace at {
class Tensor;
}

namespace graphpipe::runtime {

/// mask: truth values, [samples, places]. Returns int64 of its shape: of a place that is picked, how many are picked
/// before it in its sample; 0 elsewhere. Throws c10::IndexError where a sample picks another number than `elements`, on
/// a GPU with the device's own error.
at::Tensor number_places(const at::Tensor& mask, int64_t elements);

}  // namespace graphpipe::runtime
