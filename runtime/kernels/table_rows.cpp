#include "runtime/kernels/table_rows.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/_coalesced.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_put.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

#include "support/check.h"
#include "wire/table_gradients.h"

namespace graphpipe::runtime {
namespace {

// For [indices.., row..], the number of elements of a row.
int64_t width_of(at::IntArrayRef table) {
  int64_t width = 1;
  for (const int64_t dim : table.slice(1)) width *= dim;
  return width;
}

std::vector<int64_t> numbers_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  const int64_t* first = flat.const_data_ptr<int64_t>();
  return {first, first + flat.numel()};
}

// The row of each look-up, -1 for the padding row.
std::vector<int64_t> looked_up(const at::Tensor& indices, int64_t rows, int64_t padding_row) {
  std::vector<int64_t> found = numbers_of(indices);
  for (int64_t& row : found) {
    if (row < 0) row += rows;
    GP_CHECK(row >= 0 && row < rows);  // the forward has already read this row
    if (row == padding_row) row = -1;
  }
  return found;
}

// Ascending: `kept`, the non-negative rows of `more`, and as many other rows as are needed to make `size` in total.
std::vector<int64_t> rows_with(const std::vector<int64_t>& kept, const std::vector<int64_t>& more, size_t size) {
  std::vector<int64_t> added = more;
  std::ranges::sort(added);
  added.erase(added.begin(), std::ranges::lower_bound(added, 0));
  std::vector<int64_t> all;
  std::ranges::set_union(kept, added, std::back_inserter(all));
  all.erase(std::ranges::unique(all).begin(), all.end());
  std::vector<int64_t> fill;
  auto taken = all.begin();
  for (int64_t row = 0; all.size() + fill.size() < size; ++row) {
    if (taken != all.end() && *taken == row) ++taken;
    else fill.push_back(row);
  }
  std::vector<int64_t> whole;
  std::ranges::merge(all, fill, std::back_inserter(whole));
  return whole;
}

at::Tensor sparse_gradient(const std::vector<int64_t>& rows, const at::Tensor& values, at::IntArrayRef table) {
  const at::Tensor places = at::empty({1, std::ssize(rows)}, at::TensorOptions().dtype(at::kLong));
  std::ranges::copy(rows, places.mutable_data_ptr<int64_t>());
  at::Tensor gradient = at::_sparse_coo_tensor_unsafe(places, values, table, values.options().layout(at::kSparse));
  return gradient._coalesced_(true);
}

// Adds gradient row i to row place(i) of `sums`; skips it if that is negative.
template <typename Place>
void add_rows(const at::Tensor& sums, const at::Tensor& gradient, int64_t count, int64_t width, const Place& place) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, sums.scalar_type(), "add_table_rows", [&] {
    auto* first = sums.mutable_data_ptr<scalar_t>();
    const auto* from = gradient.const_data_ptr<scalar_t>();
    for (int64_t i = 0; i < count; ++i, from += width) {
      const int64_t row = place(i);
      if (row < 0) continue;
      scalar_t* to = first + row * width;
      for (int64_t k = 0; k < width; ++k) to[k] += from[k];
    }
  });
}

// The sum, extended by the rows of these look-ups.
at::Tensor with_rows(const at::Tensor& sum, const std::vector<int64_t>& found, const at::Tensor& gradient,
                     at::IntArrayRef table) {
  const std::vector<int64_t> before = sum.defined() ? numbers_of(stored_rows(sum)) : std::vector<int64_t>{};
  const size_t size = std::min(before.size() + found.size(), static_cast<size_t>(table.front()));
  const std::vector<int64_t> rows = rows_with(before, found, size);
  std::vector<int64_t> dims = table.vec();
  dims.front() = std::ssize(rows);
  const at::Tensor values = at::zeros(dims, gradient.options());
  if (sum.defined()) {
    const auto place = [&](int64_t i) {
      return std::ranges::lower_bound(rows, before[static_cast<size_t>(i)]) - rows.begin();
    };
    add_rows(values, stored_elements(sum), std::ssize(before), width_of(table), place);
  }
  return sparse_gradient(rows, values, table);
}

void add_on_cpu(at::Tensor& sum, const at::Tensor& gradient, const at::Tensor& indices, at::IntArrayRef table,
                int64_t padding_row) {
  const int64_t count = indices.numel(), width = width_of(table);
  const std::vector<int64_t> found = looked_up(indices, table.front(), padding_row);
  const at::Tensor added = gradient.contiguous();
  if (!sum.defined() && !wire::keeps_rows(count, table.front())) sum = at::zeros(table, gradient.options());
  if (sum.defined() && !sum.is_sparse())
    return add_rows(sum, added, count, width, [&](int64_t i) { return found[static_cast<size_t>(i)]; });
  sum = with_rows(sum, found, gradient, table);
  const std::vector<int64_t> rows = numbers_of(stored_rows(sum));
  add_rows(stored_elements(sum), added, count, width, [&](int64_t i) {
    const int64_t row = found[static_cast<size_t>(i)];
    return row < 0 ? row : std::ranges::lower_bound(rows, row) - rows.begin();
  });
}

// GPU kernels add in the order of sorted indices, which is the same in every run.
void add_on_gpu(at::Tensor& sum, const at::Tensor& gradient, const at::Tensor& indices, at::IntArrayRef table,
                int64_t padding_row) {
  if (!sum.defined()) sum = at::zeros(table, gradient.options());
  const at::Tensor rows = indices.remainder(table.front()).flatten();
  at::Tensor added = gradient.reshape({rows.numel(), -1});
  if (padding_row >= 0) added = added.masked_fill(rows.eq(padding_row).unsqueeze(1), 0);
  at::Tensor sums = sum.view({table.front(), -1});
  sums.index_put_({rows}, added, /*accumulate=*/true);
}

}  // namespace

void add_table_rows(at::Tensor& sum, const at::Tensor& gradient, const at::Tensor& indices, at::IntArrayRef table,
                    int64_t padding_row) {
  if (gradient.is_cpu()) add_on_cpu(sum, gradient, indices, table, padding_row);
  else add_on_gpu(sum, gradient, indices, table, padding_row);
}

at::Tensor stored_elements(const at::Tensor& gradient) { return gradient.is_sparse() ? gradient._values() : gradient; }

at::Tensor stored_rows(const at::Tensor& gradient) { return gradient._indices().select(0, 0); }

at::Tensor dense_gradient(const at::Tensor& gradient) { return gradient.is_sparse() ? gradient.to_dense() : gradient; }

}  // namespace graphpipe::runtime
