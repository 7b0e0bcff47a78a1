#pragma once
// Regions of planes, sampled at points between their cells: ONNX's RoiAlign
// (https://onnx.ai/onnx/operators/onnx__RoiAlign.html; He et al., Mask R-CNN, 2017).

#include <cstdint>

namespace at {
class Tensor;
}

namespace graphpipe::runtime {

struct RegionForm {
  /// Size of the result.
  int64_t height = 1, width = 1;
  /// Sampling points along each side of a bin; 0: as many as it has cells, rounded up.
  int64_t points = 0;
  /// Factor from the coordinates of regions to cells.
  double scale = 1;
  /// The centre of a cell is at one half.
  bool half_pixel = true;
  /// Takes the largest weighted corner instead of the mean over the points.
  bool maximum = false;
  /// Number of regions per sample, ordered by sample; 0: `samples` gives the sample of each region.
  int64_t per_sample = 0;
};

/// x [N, C, H, W] and regions [R, 4] (left, top, right, bottom) to [R, C, height, width]. `samples` [R] is ignored if
/// `per_sample` is given. Throws c10::Error if a coordinate is NaN or huge, or a region belongs to a sample that does
/// not exist.
at::Tensor region_values(const at::Tensor& x, const at::Tensor& regions, const at::Tensor& samples,
                         const RegionForm& form);
/// The gradient of x. Regions get no gradient, as in torchvision.
at::Tensor region_values_gradient(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& regions,
                                  const at::Tensor& samples, const RegionForm& form);

}  // namespace graphpipe::runtime
