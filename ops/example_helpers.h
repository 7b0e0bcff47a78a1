#pragma once
// Short spellings for the examples of the entries: `normal({fixed(2), fixed(3)})`, `batched({2, 3})`.
//
// In the shape lists of these helpers a plain number is a fixed size and `batch()` is the batch.

#include <vector>

#include "ops/op_def.h"

namespace graphpipe::ops {

/// A dim in an example's shape: a size, or the batch.
struct ExampleDim : ir::Dim {
  constexpr ExampleDim(int64_t size) : ir::Dim{size, 0} {}
  constexpr ExampleDim(ir::Dim dim) : ir::Dim(dim) {}
};
inline constexpr ir::Dim kB = ir::Dim::batch();
using ExampleShape = std::vector<ExampleDim>;

inline ir::Shape shape_of(const ExampleShape& dims) { return {dims.begin(), dims.end()}; }

/// Float activations drawn from the named distribution.
inline ExampleInput drawn(ExampleInput::Fill fill, const ExampleShape& dims) {
  ExampleInput input;
  input.fill = fill;
  input.shape = shape_of(dims);
  return input;
}
inline ExampleInput normal(const ExampleShape& dims) { return drawn(ExampleInput::Fill::kNormal, dims); }
/// In [0.5, 2).
inline ExampleInput positive(const ExampleShape& dims) { return drawn(ExampleInput::Fill::kPositive, dims); }
/// In (0.05, 0.95).
inline ExampleInput uniform01(const ExampleShape& dims) { return drawn(ExampleInput::Fill::kUniform01, dims); }
/// Distinct values in random order, a quarter apart: no ties and no kinks near them.
inline ExampleInput distinct(const ExampleShape& dims) { return drawn(ExampleInput::Fill::kPermutation, dims); }
/// int64 from [low, high).
inline ExampleInput integers(const ExampleShape& dims, int64_t low, int64_t high, ir::DType dtype = ir::DType::kInt64) {
  ExampleInput input = drawn(ExampleInput::Fill::kInteger, dims);
  input.dtype = dtype;
  input.low = low;
  input.high = high;
  return input;
}
inline ExampleInput booleans(const ExampleShape& dims) {
  ExampleInput input = drawn(ExampleInput::Fill::kBool, dims);
  input.dtype = ir::DType::kBool;
  return input;
}
/// The same input marked as a weight.
inline ExampleInput weight(ExampleInput input) {
  input.is_param = true;
  return input;
}
inline ExampleInput absent() {
  ExampleInput input;
  input.absent = true;
  return input;
}

}  // namespace graphpipe::ops
