#pragma once
// Numbers the places that a mask picks in each sample, for masked_scatter.

#include <cstdint>

namespace at {
class Tensor;
}

namespace graphpipe::runtime {

/// mask: booleans, [samples, places]. Returns int64 of its shape: for a picked place, the number of places picked
/// before it in its sample; 0 elsewhere. Throws c10::IndexError if a sample does not pick exactly `elements` places, on
/// a GPU with the device's own error.
at::Tensor number_places(const at::Tensor& mask, int64_t elements);

}  // namespace graphpipe::runtime
