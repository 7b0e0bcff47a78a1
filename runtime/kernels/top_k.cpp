#include "runtime/kernels/top_k.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/max.h>
#include <ATen/ops/sort.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "runtime/kernels/vector_loops.h"

namespace graphpipe::runtime {
namespace {

bool comes_first(float a, float b, bool largest) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) != std::isnan(b) && std::isnan(a) == largest;
  return largest ? a > b : a < b;
}

/// The first k of a row of n, whose order stands in `places` [n] afterwards.
void select_row(const float* row, int64_t n, int64_t k, bool largest, std::vector<int64_t>& places) {
  places.resize(static_cast<size_t>(n));
  std::iota(places.begin(), places.end(), 0);
  std::partial_sort(places.begin(), places.begin() + k, places.end(), [&](int64_t a, int64_t b) {
    if (comes_first(row[a], row[b], largest)) return true;
    return !comes_first(row[b], row[a], largest) && a < b;
  });
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> top_k(const at::Tensor& x, int64_t k, int64_t axis, bool largest) {
  // Sorting is as fast where it is a good part of the elements that is asked for.
  constexpr int64_t kFewOf = 4;
  const bool is_last = axis == x.dim() - 1;
  const int64_t n = x.size(axis);
  if (k == 1 && largest && x.numel() > 0) return at::max(x, axis, /*keepdim=*/true);
  if (!is_last || !loop_takes(x) || k * kFewOf > n || x.numel() == 0) {
    const auto [values, indices] = at::sort(x, std::optional<bool>(true), axis, largest);
    return {values.narrow(axis, 0, k), indices.narrow(axis, 0, k)};
  }
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = k;
  const at::Tensor values = new_floats(sizes), indices = at::empty(sizes, at::TensorOptions().dtype(at::kLong));
  const auto* const elements = x.const_data_ptr<float>();
  auto* const found = values.mutable_data_ptr<float>();
  auto* const found_at = indices.mutable_data_ptr<int64_t>();
  for_parts(x.numel() / n, std::max<int64_t>(1, kElementsPerThread / n), [&](int64_t begin, int64_t end) {
    thread_local std::vector<int64_t> places;
    for (int64_t row = begin; row < end; ++row) {
      select_row(elements + row * n, n, k, largest, places);
      for (int64_t i = 0; i < k; ++i) {
        found_at[row * k + i] = places[static_cast<size_t>(i)];
        found[row * k + i] = elements[row * n + places[static_cast<size_t>(i)]];
      }
    }
  });
  return {values, indices};
}

}  // namespace graphpipe::runtime
