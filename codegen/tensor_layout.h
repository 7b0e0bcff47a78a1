#pragma once
// How a tensor is laid out in memory, following LibTorch: sizes, and the strides along each axis. Determines which
// operators return views and which copy.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ir/types.h"

namespace graphpipe::codegen {

struct TensorLayout {
  std::vector<int64_t> sizes, strides;

  /// Whether the elements are contiguous and in order.
  bool is_contiguous() const;
  /// Whether elements lie at several places (at::expand).
  bool is_repeated() const;
  bool operator==(const TensorLayout&) const = default;
};

/// Elements of a tensor of these sizes.
int64_t numel(std::span<const int64_t> sizes);
std::vector<int64_t> sizes_at(const ir::Shape& shape, Samples samples);
/// In order, without gaps.
TensorLayout contiguous(std::vector<int64_t> sizes);
/// As at::reshape: nothing if the elements in order cannot be expressed by strides, so that it copies.
std::optional<TensorLayout> reshaped(const TensorLayout& from, const std::vector<int64_t>& sizes);
/// As at::permute: axis i is the old axis axes[i].
TensorLayout permuted(const TensorLayout& from, std::span<const int> axes);
/// With further axes of one element, at these places of the result, ascending.
TensorLayout with_axes(TensorLayout from, std::span<const int> axes);
/// In order, but for the second and the third to last axis, which are swapped in memory. Needs: three axes or more.
TensorLayout with_heads_inside(std::vector<int64_t> sizes);
/// A slice along its axes, or the whole repeated along those of size 1 and along new leading ones. Needs: at least as
/// many axes.
TensorLayout part_or_expanded(const TensorLayout& from, std::vector<int64_t> sizes);
/// The layout that an element-wise operator gives its result: the axis order of `like`, without gaps.
TensorLayout ordered_like(const TensorLayout& like);

}  // namespace graphpipe::codegen
