#pragma once
// Which elements of a parameter each replica of a stage updates where replicas divide the optimizer's state: the first
// stage of ZeRO (Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, SC'20,
// section 5.1).

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>

namespace graphpipe::runtime {

/// In memory order.
struct ElementRange {
  int64_t first = 0;
  int64_t count = 0;
};

/// Of the parameter at this place of its stage. The ranges of all replicas are all elements; they begin at multiples of
/// kOwnedTogether, so that an update's vectors hold the elements that they hold where one replica updates all, which
/// decides how an element is rounded. Which replica has fewer changes from parameter to parameter.
ElementRange owned_elements(int64_t elements, size_t place, int32_t replica, int32_t replicas);
inline constexpr int64_t kOwnedTogether = 64;

/// These elements as a view [count]. Needs: the tensor is contiguous.
at::Tensor elements_in(const at::Tensor& tensor, const ElementRange& range);

}  // namespace graphpipe::runtime
