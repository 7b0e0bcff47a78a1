#include "codegen/tensor_layout.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace graphpipe::codegen {
namespace {

/// Elements at equal distances in memory.
struct Run {
  int64_t size = 1, stride = 1;
};

/// The axes from the innermost outwards, with neighbours merged if one axis could represent both.
std::vector<Run> runs_of(const TensorLayout& layout) {
  std::vector<Run> runs;
  for (size_t i = layout.sizes.size(); i-- > 0;) {
    if (layout.sizes[i] == 1) continue;
    if (!runs.empty() && layout.strides[i] == runs.back().size * runs.back().stride)
      runs.back().size *= layout.sizes[i];
    else runs.push_back({layout.sizes[i], layout.strides[i]});
  }
  return runs;
}

}  // namespace

bool TensorLayout::is_contiguous() const {
  int64_t expected = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] != 1 && strides[i] != expected) return false;
    expected *= sizes[i];
  }
  return true;
}

bool TensorLayout::is_repeated() const {
  for (size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] > 1 && strides[i] == 0) return true;
  return false;
}

int64_t numel(std::span<const int64_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

std::vector<int64_t> sizes_at(const ir::Shape& shape, Samples samples) {
  std::vector<int64_t> sizes;
  for (const ir::Dim dim : shape) sizes.push_back(dim.at(samples));
  return sizes;
}

TensorLayout contiguous(std::vector<int64_t> sizes) {
  TensorLayout layout{std::move(sizes), {}};
  layout.strides.resize(layout.sizes.size());
  int64_t stride = 1;
  for (size_t i = layout.sizes.size(); i-- > 0;) {
    layout.strides[i] = stride;
    stride *= layout.sizes[i];
  }
  return layout;
}

std::optional<TensorLayout> reshaped(const TensorLayout& from, const std::vector<int64_t>& sizes) {
  if (numel(sizes) == 0) return contiguous(sizes);
  const std::vector<Run> runs = runs_of(from);
  TensorLayout to{sizes, std::vector<int64_t>(sizes.size(), 1)};
  // From the innermost axis outwards, the new axes fill one run after the other: a run of 12 elements can be split into
  // axes of 4 and 3, but an axis of 8 would cross its end.
  size_t run = 0;
  int64_t inside = 1;  // elements of the run that the new axes cover so far
  for (size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] == 1) continue;
    // A new axis must lie within one run.
    if (runs[run].size % (inside * sizes[i]) != 0) return std::nullopt;
    to.strides[i] = inside * runs[run].stride;
    inside *= sizes[i];
    if (inside < runs[run].size) continue;
    ++run;
    inside = 1;
  }
  return to;
}

TensorLayout permuted(const TensorLayout& from, std::span<const int> axes) {
  TensorLayout to;
  for (const int axis : axes) {
    to.sizes.push_back(from.sizes[static_cast<size_t>(axis)]);
    to.strides.push_back(from.strides[static_cast<size_t>(axis)]);
  }
  return to;
}

TensorLayout with_heads_inside(std::vector<int64_t> sizes) {
  const size_t heads = sizes.size() - 3;
  std::swap(sizes[heads], sizes[heads + 1]);
  TensorLayout layout = contiguous(std::move(sizes));
  std::swap(layout.sizes[heads], layout.sizes[heads + 1]);
  std::swap(layout.strides[heads], layout.strides[heads + 1]);
  return layout;
}

TensorLayout part_or_expanded(const TensorLayout& from, std::vector<int64_t> sizes) {
  TensorLayout to{std::move(sizes), {}};
  to.strides.resize(to.sizes.size(), 0);
  const size_t more = to.sizes.size() - from.sizes.size();
  for (size_t i = 0; i < from.sizes.size(); ++i)
    if (from.sizes[i] >= to.sizes[more + i]) to.strides[more + i] = from.strides[i];
  return to;
}

TensorLayout with_axes(TensorLayout from, std::span<const int> axes) {
  for (const int axis : axes) {
    from.sizes.insert(from.sizes.begin() + axis, 1);
    from.strides.insert(from.strides.begin() + axis, 0);
  }
  return from;
}

TensorLayout ordered_like(const TensorLayout& like) {
  std::vector<size_t> order(like.sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater(), [&](size_t axis) { return like.strides[axis]; });
  TensorLayout to{like.sizes, std::vector<int64_t>(like.sizes.size(), 1)};
  int64_t stride = 1;
  for (size_t i = order.size(); i-- > 0;) {
    to.strides[order[i]] = stride;
    stride *= like.sizes[order[i]];
  }
  return to;
}

}  // namespace graphpipe::codegen
