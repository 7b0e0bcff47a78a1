#pragma once
// The gradient of a table of which a step looks up only a few rows: an embedding of a hundred thousand rows, say, with
// a batch of a thousand ids. Such a gradient holds only the rows that were looked up, as a sparse PyTorch tensor (COO,
// coalesced), so that neither a sum nor an update passes over the whole table.
//
// It holds as many rows as there were look-ups, or all rows of the table if that is fewer: if some were looked up
// twice, the first rows that were not fill it up, with zeros. So a step allocates the same sizes in every step
// (step_arena.h).

#include <ATen/core/Tensor.h>

namespace graphpipe::runtime {

/// Adds the rows of `gradient` to those that `indices` names, in the order of the indices, so that runs are
/// bit-reproducible. `gradient` is [indices.., row..]; the table [rows, row..] = `table`; a negative index counts from
/// the table's end. `padding_row` gets nothing (-1: there is none). An undefined `sum` becomes sparse if that is
/// worthwhile, on CPUs, otherwise dense; a defined one keeps its layout.
void add_table_rows(at::Tensor& sum, const at::Tensor& gradient, const at::Tensor& indices, at::IntArrayRef table,
                    int64_t padding_row);

/// The elements that may be nonzero: all of a dense gradient. Shares memory with it.
at::Tensor stored_elements(const at::Tensor& gradient);
/// The rows of stored_elements(), int64, ascending. Needs a sparse gradient.
at::Tensor stored_rows(const at::Tensor& gradient);
/// The gradient as a tensor of all rows; itself if it is dense.
at::Tensor dense_gradient(const at::Tensor& gradient);

}  // namespace graphpipe::runtime
