#pragma once
// The layout of data in files: the batch axis first, whatever axis of the tensor it is.

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <vector>

#include "runtime/program.h"
#include "runtime/tensors.h"

namespace graphpipe::runtime {

/// The row's dims with the batch axis first.
inline std::vector<int64_t> stored_dims(const DataRow& row, int64_t samples) {
  std::vector<int64_t> dims = shape_of(row.tensor, samples);
  if (row.tensor.batch_axis > 0)
    std::rotate(dims.begin(), dims.begin() + row.tensor.batch_axis, dims.begin() + row.tensor.batch_axis + 1);
  return dims;
}

/// What the row expects of its file.
inline wire::DataEntry entry_of(const DataRow& row) {
  return {.name = row.name,
          .type = row.tensor.type,
          .batch_axis = row.tensor.batch_axis,
          .dims = stored_dims(row, 1),
          .ids = row.ids};
}

inline at::Tensor batch_axis_in_place(at::Tensor stored, const DataRow& row) {
  if (row.tensor.batch_axis <= 0) return stored;
  return stored.movedim(0, row.tensor.batch_axis).contiguous();
}

}  // namespace graphpipe::runtime
