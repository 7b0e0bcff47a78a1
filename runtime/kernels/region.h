#pragma once
// Regions of planes, read at points between their cells: ONNX's RoiAlign
// (https://onnx.ai/onnx/operators/onnx__RoiAlign.html; He et al., Mask R-CNN, 2017).

#include <cstdint>

namespace at {
class Tensor;
}

namespace graphpipe::runtime {

struct RegionForm {
  /// Of the result.
  int64_t height = 1, width = 1;
  /// Points along each side of a bin; 0: as many as it has cells, rounded up.
  int64_t points = 0;
  /// From the coordinates of regions to cells.
  double scale = 1;
  /// The middle of a cell lies at a half.
  bool half_pixel = true;
  /// The largest share of a corner instead of the mean over the points.
  bool maximum = false;
  /// As many regions of each sample, one sample behind the other; 0: `samples` says which sample each is of.
  int64_t per_sample = 0;
};

/// x [N, C, H, W] and regions [R, 4] (left, top, right, bottom) to [R, C, height, width]. `samples` [R] is not looked
/// at where `per_sample` is given. Throws c10::Error where a region is no number, or of a sample that is not there.
at::Tensor region_values(const at::Tensor& x, const at::Tensor& regions, const at::Tensor& samples,
                         const RegionForm& form);
/// The gradient of x. Regions have none, as in torchvision.
at::Tensor region_values_gradient(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& regions,
                                  const at::Tensor& samples, const RegionForm& form);

}  // namespace graphpipe::runtime
