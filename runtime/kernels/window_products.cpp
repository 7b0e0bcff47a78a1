#include "runtime/kernels/window_products.h"

#include <algorithm>

#include "runtime/kernels/packed_product.h"
#include "runtime/kernels/windows.h"

namespace graphpipe::runtime {
namespace {

/// The results' planes of a block's windows as a matrix [results, windows].
struct ResultMatrix {
  int64_t stride = 0;
  /// First element of it in planes [samples, results, places], where its rows are parts of theirs.
  int64_t first = 0;
  /// Whether it is a copy, by channels: of several samples.
  bool is_copy = false;
};

ResultMatrix result_matrix(const WindowPass& pass, const WindowBlock& block) {
  if (block.samples > 1) return {.stride = block.windows(pass.shape), .is_copy = true};
  return {
      .stride = pass.shape.places(),
      .first = block.first_sample * pass.results * pass.shape.places() + block.first_line * pass.shape.places_right};
}

float* columns_of(const WindowPass& pass) { return pass.workspace; }
float* by_channels(const WindowPass& pass) { return pass.workspace + wire::column_floats(pass.shape); }

/// Calls copy(plane of a sample's channel, the same places by channels, their number) for a block of whole samples.
template <typename Copy>
void for_each_plane(const WindowPass& pass, const WindowBlock& block, const Copy& copy) {
  const int64_t places = pass.shape.places();
  for (int64_t result = 0; result < pass.results; ++result)
    for (int64_t sample = 0; sample < block.samples; ++sample)
      copy(((block.first_sample + sample) * pass.results + result) * places, (result * block.samples + sample) * places,
           places);
}

/// The block's part of planes [samples, results, places], read.
MatrixView read_results(const WindowPass& pass, const WindowBlock& block, const float* planes) {
  const ResultMatrix matrix = result_matrix(pass, block);
  const MatrixView view{planes + matrix.first, pass.results, block.windows(pass.shape), matrix.stride, 1};
  if (!matrix.is_copy) return view;
  float* const copies = by_channels(pass);
  for_each_plane(pass, block, [&](int64_t plane, int64_t copy, int64_t places) {
    std::copy_n(planes + plane, places, copies + copy);
  });
  return {copies, view.rows, view.columns, view.row_stride, 1};
}

/// Calls `work` with each block of windows, with no channels yet.
template <typename Work>
void for_each_block(const WindowShape& shape, const Work& work) {
  const wire::WindowBlocks blocks = wire::window_blocks(shape);
  for (int64_t sample = 0; sample < shape.samples; sample += blocks.samples)
    for (int64_t line = 0; line < shape.places_down; line += blocks.lines)
      work(WindowBlock{.first_sample = sample,
                       .samples = std::min(blocks.samples, shape.samples - sample),
                       .first_line = line,
                       .lines = std::min(blocks.lines, shape.places_down - line)});
}

/// Calls `work` with the block's parts of some channels each, and the first of their rows.
template <typename Work>
void for_each_part(const WindowShape& shape, WindowBlock block, const Work& work) {
  const int64_t channels = wire::window_blocks(shape).channels;
  for (; block.first_channel < shape.channels; block.first_channel += channels) {
    block.channels = std::min(channels, shape.channels - block.first_channel);
    work(block, block.first_channel * shape.kernel());
  }
}

/// The weights' columns that meet the rows of a part.
MatrixView weights_of(const WindowPass& pass, const WindowBlock& part, int64_t first_row, const float* weight) {
  return {weight + first_row, pass.results, part.rows(pass.shape), pass.shape.rows(), 1};
}

/// A part's columns, as they were written last.
MatrixView columns_view(const WindowPass& pass, const WindowBlock& part) {
  const int64_t windows = part.windows(pass.shape);
  return {columns_of(pass), part.rows(pass.shape), windows, windows, 1};
}

}  // namespace

void window_planes(const WindowPass& pass, const float* x, const float* weight, const float* bias, float* y) {
  const WindowShape& shape = pass.shape;
  for_each_block(shape, [&](const WindowBlock& block) {
    const ResultMatrix matrix = result_matrix(pass, block);
    float* const made = matrix.is_copy ? by_channels(pass) : y + matrix.first;
    if (bias != nullptr)
      for (int64_t result = 0; result < pass.results; ++result)
        std::fill_n(made + result * matrix.stride, block.windows(shape), bias[result]);
    for_each_part(shape, block, [&](const WindowBlock& part, int64_t first_row) {
      windows_to_columns(shape, part, x, columns_of(pass));
      multiply_packed(weights_of(pass, part, first_row, weight), columns_view(pass, part), made, matrix.stride,
                      bias != nullptr || first_row > 0);
    });
    if (!matrix.is_copy) return;
    for_each_plane(pass, block,
                   [&](int64_t plane, int64_t copy, int64_t places) { std::copy_n(made + copy, places, y + plane); });
  });
}

void window_input_gradient(const WindowPass& pass, const float* gradient, const float* weight, float* x_gradient) {
  const WindowShape& shape = pass.shape;
  std::fill_n(x_gradient, shape.samples * shape.channels * shape.height * shape.width, 0.0F);
  for_each_block(shape, [&](const WindowBlock& block) {
    const MatrixView gradients = read_results(pass, block, gradient);
    for_each_part(shape, block, [&](const WindowBlock& part, int64_t first_row) {
      multiply_packed(weights_of(pass, part, first_row, weight).turned(), gradients, columns_of(pass),
                      part.windows(shape), /*adds=*/false);
      add_columns_to_planes(shape, part, columns_of(pass), x_gradient);
    });
  });
}

void window_weights(const WindowPass& pass, const float* x, const float* gradient, float* weights, bool adds) {
  const WindowShape& shape = pass.shape;
  for_each_block(shape, [&](const WindowBlock& block) {
    const MatrixView gradients = read_results(pass, block, gradient);
    for_each_part(shape, block, [&](const WindowBlock& part, int64_t first_row) {
      windows_to_columns(shape, part, x, columns_of(pass));
      multiply_packed(gradients, columns_view(pass, part).turned(), weights + first_row, shape.rows(), adds);
    });
    adds = true;
  });
}

}  // namespace graphpipe::runtime
