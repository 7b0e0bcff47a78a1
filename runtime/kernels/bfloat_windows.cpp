#include "runtime/kernels/bfloat_windows.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include "runtime/kernels/bfloats.h"
#include "runtime/kernels/windows.h"

namespace graphpipe::runtime {
namespace {

WindowBlock all_windows(const WindowShape& shape) {
  return {.samples = shape.samples, .lines = shape.places_down, .channels = shape.channels};
}

/// Planes [samples, channels, ..] as [channels, samples * places]: a copy where there are several samples.
at::Tensor channels_first(const at::Tensor& planes) {
  return planes.transpose(0, 1).reshape({planes.size(1), planes.size(0) * planes.size(2) * planes.size(3)});
}

/// [rows, windows]
at::Tensor all_columns(const WindowShape& shape, const at::Tensor& x) {
  if (shape.reads_whole_planes()) return channels_first(x);
  at::Tensor columns = new_bfloats({shape.rows(), shape.windows()});
  windows_to_columns(shape, all_windows(shape), bits_of(x), mutable_bits_of(columns));
  return columns;
}

}  // namespace

at::Tensor bfloat_window_planes(const WindowShape& shape, const at::Tensor& x, const at::Tensor& weight,
                                const at::Tensor& bias) {
  const int64_t results = weight.size(0);
  const at::Tensor columns = all_columns(shape, x), matrix = weight.view({results, -1});
  const at::Tensor made =
      bias.defined() ? at::addmm(bias.view({results, 1}), matrix, columns) : at::mm(matrix, columns);
  return made.view({results, shape.samples, shape.places_down, shape.places_right}).transpose(0, 1).contiguous();
}

at::Tensor bfloat_window_input_gradient(const WindowShape& shape, const at::Tensor& gradient,
                                        const at::Tensor& weight) {
  const at::Tensor columns = at::mm(weight.view({weight.size(0), -1}).t(), channels_first(gradient));
  const int64_t sizes[] = {shape.samples, shape.channels, shape.height, shape.width};
  if (shape.reads_whole_planes())
    return columns.view({shape.channels, shape.samples, shape.height, shape.width}).transpose(0, 1).contiguous();
  const at::Tensor sums = at::zeros(sizes, at::kFloat);
  add_columns_to_planes(shape, all_windows(shape), bits_of(columns), sums.mutable_data_ptr<float>());
  return narrowed(sums.const_data_ptr<float>(), sizes);
}

at::Tensor bfloat_window_weights(const WindowShape& shape, const at::Tensor& gradient, const at::Tensor& x) {
  return at::mm(channels_first(gradient), all_columns(shape, x).t());
}

}  // namespace graphpipe::runtime
