#pragma once
// Resize along one axis as a matrix: each cell of the result is a weighted sum of cells of the input. The forms are
// those of ONNX's Resize (operator set 19), whose axes are resized one after the other.

#include <cstdint>
#include <string>
#include <vector>

namespace graphpipe::frontend {

struct ResizeForm {
  std::string mode = "nearest", coordinates = "half_pixel", rounding = "round_prefer_floor";
  double cubic = -0.75;
  bool antialias = false, exclude_outside = false;
};

/// One axis: cells before and after, the scale as the model gives it (which may differ from after / before), and the
/// part of the axis that tf_crop_and_resize takes.
struct ResizedAxis {
  int64_t before = 0, after = 0;
  double scale = 1;
  double crop_start = 0, crop_end = 1;
};

struct ResizeWeights {
  /// before x after, row by row: the input times this matrix is the result.
  std::vector<double> matrix;
  /// Cells of the result that lie outside the input and get the extrapolation value; their columns are zero.
  std::vector<bool> outside;
};

/// Whether the form's modes are supported.
bool has_resize_weights(const ResizeForm& form);

/// Needs: has_resize_weights(form), at least one cell before and after, a positive scale.
ResizeWeights resize_weights(const ResizeForm& form, const ResizedAxis& axis);

}  // namespace graphpipe::frontend
