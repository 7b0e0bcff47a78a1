#pragma once
// How a tensor lies in its memory, as LibTorch lays it: sizes, and the elements from one index to the next along each
// axis. Tells which operators look at memory that is there and which copy it.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ir/types.h"

namespace graphpipe::codegen {

struct TensorLayout {
  std::vector<int64_t> sizes, strides;

  /// Whether the elements lie one behind the other, in order.
  bool is_contiguous() const;
  bool operator==(const TensorLayout&) const = default;
};

/// Elements of a tensor of these sizes.
int64_t numel(std::span<const int64_t> sizes);
std::vector<int64_t> sizes_at(const ir::Shape& shape, Samples samples);
/// In order, without gaps.
TensorLayout contiguous(std::vector<int64_t> sizes);
/// As at::reshape: nothing where the elements in order cannot be named by strides, so that it copies.
std::optional<TensorLayout> reshaped(const TensorLayout& from, const std::vector<int64_t>& sizes);
/// As at::permute: axis i is the old axis axes[i].
TensorLayout permuted(const TensorLayout& from, std::span<const int> axes);
/// A part along its axes, or the whole repeated along those of size 1 and along new ones in front. Needs: no fewer
/// axes.
TensorLayout part_or_expanded(const TensorLayout& from, std::vector<int64_t> sizes);
/// What an element-wise operator gives its result: the order of axes that `like` has, without gaps.
TensorLayout ordered_like(const TensorLayout& like);

}  // namespace graphpipe::codegen
