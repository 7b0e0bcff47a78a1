#include "runtime/optimizers/owned_elements.h"

#include <algorithm>

namespace graphpipe::runtime {

ElementRange owned_elements(int64_t elements, size_t place, int32_t replica, int32_t replicas) {
  const int64_t runs = (elements + kOwnedTogether - 1) / kOwnedTogether;
  const auto part = static_cast<int64_t>((static_cast<size_t>(replica) + place) % static_cast<size_t>(replicas));
  const auto begin_of = [&](int64_t of) { return std::min(runs * of / replicas * kOwnedTogether, elements); };
  return {begin_of(part), begin_of(part + 1) - begin_of(part)};
}

at::Tensor elements_in(const at::Tensor& tensor, const ElementRange& range) {
  return tensor.view(-1).narrow(0, range.first, range.count);
}

}  // namespace graphpipe::runtime
