#include "runtime/kernels/scale_number.h"

#include <ATen/core/Tensor.h>

#include "runtime/kernels/vector_loops.h"

namespace graphpipe::runtime {

at::Tensor scale_number_(const at::Tensor& x, const at::Tensor& factor) {
  if (!is_plain(x) || !is_plain(factor)) return at::Tensor(x).mul_(factor);
  *x.mutable_data_ptr<float>() *= *factor.const_data_ptr<float>();
  return x;
}

}  // namespace graphpipe::runtime
