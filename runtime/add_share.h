#pragma once
// How generated weight-gradient functions add up the shares of a parameter's gradient. Header only, so that a
// stage library needs nothing of the runtime library to link.

#include <ATen/core/Tensor.h>

namespace graphpipe::runtime {

/// Whether `tensor` is dense and the sole owner of its memory, so that it may be written in place.
inline bool owns_its_memory(const at::Tensor& tensor) {
  return tensor.use_count() == 1 && tensor.is_contiguous() && tensor.storage().use_count() == 1 &&
         tensor.nbytes() == tensor.storage().nbytes();
}

/// Adds `share` to `sum`. The first share of a step (sum undefined) becomes the sum: the tensor itself if nothing else
/// shares its memory, otherwise a dense copy. A sparse sum (kernels/table_rows.h) becomes dense.
inline void add_share(at::Tensor& sum, const at::Tensor& share) {
  if (sum.defined() && sum.is_sparse()) sum = sum.to_dense();
  if (sum.defined()) sum.add_(share);
  else sum = owns_its_memory(share) ? share : share.clone(at::MemoryFormat::Contiguous);
}

}  // namespace graphpipe::runtime
