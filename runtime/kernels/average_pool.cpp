#include "runtime/kernels/average_pool.h"

#include <ATen/native/Pool.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/avg_pool2d_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "runtime/kernels/convolution_geometry.h"
#include "runtime/kernels/depthwise_planes.h"
#include "runtime/kernels/vector_loops.h"
#include "runtime/kernels/windows.h"
#include "wire/depthwise.h"

namespace graphpipe::runtime {
namespace {

struct AveragePool {
  at::IntArrayRef kernel, strides, pads;
  bool rounds_up, counts_pads;
  std::optional<int64_t> divisor;

  WindowShape shape_of(const at::Tensor& x) const {
    constexpr int64_t kOnes[] = {1, 1};
    return window_shape(x.sizes(), {x.size(1), 1, kernel[0], kernel[1]}, {strides, pads, kOnes});
  }
  /// Every window is divided by the same number.
  bool is_even() const { return counts_pads || divisor || (pads[0] == 0 && pads[1] == 0); }
  /// A kernel for each channel: that of the average, or of sums.
  at::Tensor weights(const at::Tensor& x) const {
    const int64_t cells = divisor.value_or(kernel[0] * kernel[1]);
    return at::full({x.size(1), kernel[0], kernel[1]}, is_even() ? 1.0 / static_cast<double>(cells) : 1.0, at::kFloat);
  }
};

/// Whether the loops take it: no window reaches over the pads, as one may where sizes are rounded up.
bool by_loops(const AveragePool& pool, const at::Tensor& read, const at::Tensor& x) {
  if (x.dim() != 4 || !loop_takes(read)) return false;
  const WindowShape shape = pool.shape_of(x);
  const auto places = [&](size_t axis) {
    return at::native::pooling_output_shape<int64_t>(x.size(static_cast<int64_t>(axis) + 2), pool.kernel[axis],
                                                     pool.pads[axis], pool.strides[axis], 1, pool.rounds_up);
  };
  return wire::fits_depthwise(shape) && places(0) == shape.places_down && places(1) == shape.places_right;
}

/// Elements of the kernel inside of the plane along an axis.
int64_t cells_inside(int64_t place, int64_t stride, int64_t pad, int64_t kernel, int64_t size) {
  const int64_t begin = place * stride - pad;
  return std::min(begin + kernel, size) - std::max<int64_t>(begin, 0);
}

/// Divides each place of all planes by the number of elements that its window has inside: `to` may be `from`.
void divide_by_cells(const WindowShape& shape, const float* from, float* to) {
  for_parts(shape.samples * shape.channels, std::max<int64_t>(1, kElementsPerThread / shape.places()),
            [&](int64_t begin, int64_t end) {
              for (int64_t line = begin * shape.places_down; line < end * shape.places_down; ++line) {
                const int64_t lines = cells_inside(line % shape.places_down, shape.stride_down, shape.pad_top,
                                                   shape.kernel_height, shape.height);
                for (int64_t i = 0; i < shape.places_right; ++i) {
                  const int64_t columns =
                      cells_inside(i, shape.stride_right, shape.pad_left, shape.kernel_width, shape.width);
                  const int64_t at = line * shape.places_right + i;
                  to[at] = from[at] / static_cast<float>(lines * columns);
                }
              }
            });
}

}  // namespace

at::Tensor average_pool_2d(const at::Tensor& x, at::IntArrayRef kernel, at::IntArrayRef strides, at::IntArrayRef pads,
                           bool rounds_up, bool counts_pads, std::optional<int64_t> divisor) {
  const AveragePool pool{kernel, strides, pads, rounds_up, counts_pads, divisor};
  if (!by_loops(pool, x, x)) return at::avg_pool2d(x, kernel, strides, pads, rounds_up, counts_pads, divisor);
  const WindowShape shape = pool.shape_of(x);
  at::Tensor result = at::empty({shape.samples, shape.channels, shape.places_down, shape.places_right}, x.options());
  auto* const to = result.mutable_data_ptr<float>();
  const at::Tensor weights = pool.weights(x);
  depthwise_planes<float>(shape, x.const_data_ptr<float>(), weights.const_data_ptr<float>(), nullptr, to);
  if (!pool.is_even()) divide_by_cells(shape, to, to);
  return result;
}

at::Tensor average_pool_2d_gradient(const at::Tensor& gradient, const at::Tensor& x, at::IntArrayRef kernel,
                                    at::IntArrayRef strides, at::IntArrayRef pads, bool rounds_up, bool counts_pads,
                                    std::optional<int64_t> divisor) {
  const AveragePool pool{kernel, strides, pads, rounds_up, counts_pads, divisor};
  if (!by_loops(pool, gradient, x))
    return at::avg_pool2d_backward(gradient, x, kernel, strides, pads, rounds_up, counts_pads, divisor);
  const WindowShape shape = pool.shape_of(x);
  at::Tensor shares = gradient;
  if (!pool.is_even()) {
    shares = at::empty(gradient.sizes(), gradient.options());
    divide_by_cells(shape, gradient.const_data_ptr<float>(), shares.mutable_data_ptr<float>());
  }
  at::Tensor result = at::empty(x.sizes(), gradient.options());
  const at::Tensor weights = pool.weights(x);
  depthwise_input_gradient<float>(shape, shares.const_data_ptr<float>(), weights.const_data_ptr<float>(),
                                  result.mutable_data_ptr<float>());
  return result;
}

}  // namespace graphpipe::runtime
