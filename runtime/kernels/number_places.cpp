#include "runtime/kernels/number_places.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/_assert_async.h>
#include <c10/util/Exception.h>

namespace graphpipe::runtime {

at::Tensor number_places(const at::Tensor& mask, int64_t elements) {
  const at::Tensor counts = mask.sum(1);
  if (mask.is_cpu()) {
    const int64_t* count = counts.const_data_ptr<int64_t>();
    for (int64_t sample = 0; sample < counts.size(0); ++sample)
      TORCH_CHECK_INDEX(count[sample] == elements, "masked_scatter: the mask picks ", count[sample],
                        " elements in sample ", sample, " of the micro-batch, and its source has ", elements,
                        " for each sample");
  } else {
    at::_assert_async(counts.eq(elements).all(),
                      "masked_scatter: the mask picks another number of elements in a sample than its source has");
  }
  return mask.cumsum(1).sub_(1).mul_(mask);
}

}  // namespace graphpipe::runtime
