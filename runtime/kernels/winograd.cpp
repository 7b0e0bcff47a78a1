#include "runtime/kernels/winograd.h"

#include <ATen/Parallel.h>

#include "runtime/kernels/panel_product.h"
#include "runtime/kernels/winograd_tiles.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3")
#endif

namespace graphpipe::runtime {
namespace {

using wire::kFloatsBetweenValues;
using wire::kTilesOfPanel;
using wire::kTileValues;
using Weights = Vector8[9];

constexpr int64_t kElementsOfWeight = 9;

/// The three parts of the workspace; the matrices of two values lie `between` floats apart.
struct Part {
  float* data;
  int64_t between;
};
struct Workspace {
  Part weights, elements, products;
  Workspace(const WinogradPass& pass, const wire::WinogradTiles& tiles) {
    const int64_t inner = wire::whole_panels(pass.shape.inner), columns = tiles.panels_of_block * kTilesOfPanel;
    float* next = pass.workspace;
    const auto take = [&](int64_t floats) {
      const Part part{next, floats + kFloatsBetweenValues};
      next += kTileValues * part.between;
      return part;
    };
    weights = take(pass.shape.rows * inner);
    elements = take(columns * inner);
    products = take(columns * pass.shape.rows);
  }
};

/// One pass over the tiles, and the block of vectors [first, last) that is in memory.
struct Block {
  const WinogradPass& pass;
  wire::WinogradTiles tiles;
  Workspace workspace;
  int64_t first = 0, last = 0;

  explicit Block(const WinogradPass& of) : pass(of), tiles(wire::winograd_tiles(of.shape)), workspace(of, tiles) {}
  int64_t panels() const { return (last - first + 1) / 2; }
  Planes read() const { return {pass.shape.inner, pass.read_height, pass.read_width}; }
  Planes tiled() const { return {pass.shape.rows, pass.shape.height, pass.shape.width}; }
};

template <typename Work>
void for_each_block(Block& block, const Work& work) {
  const int64_t vectors = 2 * block.tiles.panels_of_block;
  for (block.first = 0; block.first < block.tiles.vectors; block.first = block.last) {
    block.last = std::min(block.first + vectors, block.tiles.vectors);
    work();
  }
}

GRAPHPIPE_INLINE void store_values(const TileVectors& tile, float* to, int64_t between) {
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) store8(to + (i * 4 + j) * between, tile.of[i][j]);
}

/// Eight weights of 3x3, the first at `from` and each `stride` floats after the one before, of which `count` exist.
GRAPHPIPE_INLINE void load_weights(const float* from, int64_t stride, int64_t count, bool is_turned, Weights& weights) {
  float lanes[kElementsOfWeight][kVector8Lanes] = {};
  for (int64_t lane = 0; lane < count; ++lane)
    for (int64_t i = 0; i < kElementsOfWeight; ++i)
      lanes[i][lane] = from[lane * stride + (is_turned ? kElementsOfWeight - 1 - i : i)];
  for (int64_t i = 0; i < kElementsOfWeight; ++i) weights[i] = load8(lanes[i]);
}

/// Eight weights of a row, from channel `inner` on, to [value][row][inner].
GRAPHPIPE_INLINE void transform_some_weights(const Block& block, const float* weight, bool is_turned, int64_t row,
                                             int64_t inner) {
  const wire::WinogradShape& shape = block.pass.shape;
  const Part& to = block.workspace.weights;
  const int64_t row_stride = kElementsOfWeight * (is_turned ? 1 : shape.inner);
  const int64_t inner_stride = kElementsOfWeight * (is_turned ? shape.rows : 1);
  const int64_t count = std::min(kVector8Lanes, shape.inner - inner);
  Weights weights;
  load_weights(weight + row * row_stride + inner * inner_stride, inner_stride, count, is_turned, weights);
  const TileVectors tile = transform_weights(weights);
  float* const place = to.data + row * shape.inner + inner;
  if (count == kVector8Lanes) return store_values(tile, place, to.between);
  for (int64_t value = 0; value < kTileValues; ++value)
    for (int64_t lane = 0; lane < count; ++lane) place[value * to.between + lane] = tile.of[value / 4][value % 4][lane];
}

/// Rows [begin, end). Where weights are turned, those of consecutive rows lie together: all rows of a cache line's
/// channels come before the next channels.
GRAPHPIPE_AVX2 void transform_all_weights(const Block& block, const float* weight, bool is_turned, int64_t begin,
                                          int64_t end) {
  const int64_t channels = block.pass.shape.inner, together = is_turned ? 2 * kVector8Lanes : channels;
  for (int64_t first = 0; first < channels; first += together)
    for (int64_t row = begin; row < end; ++row)
      for (int64_t inner = first; inner < std::min(first + together, channels); inner += kVector8Lanes)
        transform_some_weights(block, weight, is_turned, row, inner);
}

/// Channels [begin, end) of the block's elements to [value][panel][channel][tile of the panel].
GRAPHPIPE_AVX2 void transform_all_elements(const Block& block, const float* read, int64_t begin, int64_t end) {
  const WinogradPass& pass = block.pass;
  const Part& to = block.workspace.elements;
  TileRows rows;
  for (int64_t channel = begin; channel < end; ++channel)
    for (int64_t vector = block.first; vector < block.last; ++vector) {
      read_rows<4>(block.tiles, block.read(), read, channel, pass.pad_top, pass.pad_left, vector, rows);
      const int64_t place = vector - block.first;
      store_values(transform_elements(rows),
                   to.data + (place / 2 * pass.shape.inner + channel) * kTilesOfPanel + place % 2 * kVector8Lanes,
                   to.between);
    }
}

/// Products [value][panel][row][tile of the panel] to rows [begin, end) of the planes.
GRAPHPIPE_AVX2 void make_results(const Block& block, const float* bias, float* made, int64_t begin, int64_t end) {
  const Part& from = block.workspace.products;
  for (int64_t row = begin; row < end; ++row)
    for (int64_t vector = block.first; vector < block.last; ++vector) {
      const int64_t place = vector - block.first;
      Vector8 results[2][2];
      results_of_products(
          from.data + (place / 2 * block.pass.shape.rows + row) * kTilesOfPanel + place % 2 * kVector8Lanes,
          from.between, bias == nullptr ? 0.0F : bias[row], results);
      write_rows(block.tiles, block.tiled(), made, row, vector, results);
    }
}

/// Groups [begin, end) of eight channels to [value][panel of channels][tile of the block][channel of the panel].
GRAPHPIPE_AVX2 void transform_elements_by_tiles(const Block& block, const float* x, int64_t begin, int64_t end) {
  const WinogradPass& pass = block.pass;
  const Part& to = block.workspace.elements;
  const int64_t columns = block.tiles.panels_of_block * kTilesOfPanel;
  TileRows rows;
  for (int64_t group = begin; group < end; ++group)
    for (int64_t vector = block.first; vector < block.last; ++vector) {
      Vector8 squares[kTileValues][kVector8Lanes] = {};
      for (int64_t lane = 0; lane < std::min(kVector8Lanes, pass.shape.inner - group * kVector8Lanes); ++lane) {
        read_rows<4>(block.tiles, block.read(), x, group * kVector8Lanes + lane, pass.pad_top, pass.pad_left, vector,
                     rows);
        const TileVectors tile = transform_elements(rows);
        for (int64_t value = 0; value < kTileValues; ++value) squares[value][lane] = tile.of[value / 4][value % 4];
      }
      float* const place = to.data + (group / 2 * columns + (vector - block.first) * kVector8Lanes) * kPanelColumns +
                           group % 2 * kVector8Lanes;
      for (int64_t value = 0; value < kTileValues; ++value) {
        transpose(squares[value]);
        for (int64_t tile = 0; tile < kVector8Lanes; ++tile)
          store8(place + value * to.between + tile * kPanelColumns, squares[value][tile]);
      }
    }
}

/// Rows [begin, end) of the block's gradients to [value][row][tile of the block].
GRAPHPIPE_AVX2 void transform_all_gradients(const Block& block, const float* gradient, int64_t begin, int64_t end) {
  const Part& to = block.workspace.products;
  const int64_t columns = block.tiles.panels_of_block * kTilesOfPanel;
  TileRows rows;
  for (int64_t row = begin; row < end; ++row)
    for (int64_t vector = block.first; vector < block.last; ++vector) {
      read_rows<2>(block.tiles, block.tiled(), gradient, row, 0, 0, vector, rows);
      store_values(transform_gradients(rows), to.data + row * columns + (vector - block.first) * kVector8Lanes,
                   to.between);
    }
}

/// Sums [value][panel of channels][row][channel of the panel] to rows [begin, end) of the weights' gradient.
GRAPHPIPE_AVX2 void make_weights(const Block& block, float* weights, bool adds, int64_t begin, int64_t end) {
  const wire::WinogradShape& shape = block.pass.shape;
  const Part& from = block.workspace.weights;
  for (int64_t row = begin; row < end; ++row)
    for (int64_t channel = 0; channel < shape.inner; channel += kVector8Lanes) {
      Weights gradients;
      gradients_of_products(
          from.data + (channel / kPanelColumns * shape.rows + row) * kPanelColumns + channel % kPanelColumns,
          from.between, gradients);
      float* const to = weights + (row * shape.inner + channel) * kElementsOfWeight;
      for (int64_t lane = 0; lane < std::min(kVector8Lanes, shape.inner - channel); ++lane)
        for (int64_t i = 0; i < kElementsOfWeight; ++i) {
          float& place = to[lane * kElementsOfWeight + i];
          place = adds ? place + gradients[i][lane] : gradients[i][lane];
        }
    }
}

}  // namespace

bool has_winograd() { return has_avx2(); }

void winograd_planes(const WinogradPass& pass, const float* read, const float* weight, bool is_turned,
                     const float* bias, float* made) {
  const wire::WinogradShape& shape = pass.shape;
  Block block(pass);
  const auto& [weights, elements, products] = block.workspace;
  at::parallel_for(0, shape.rows, 1,
                   [&](int64_t begin, int64_t end) { transform_all_weights(block, weight, is_turned, begin, end); });
  for_each_block(block, [&] {
    at::parallel_for(0, shape.inner, 1,
                     [&](int64_t begin, int64_t end) { transform_all_elements(block, read, begin, end); });
    at::parallel_for(0, kTileValues, 1, [&](int64_t begin, int64_t end) {
      for (int64_t value = begin; value < end; ++value)
        multiply_panels({.rows = shape.rows,
                         .inner = shape.inner,
                         .panels = block.panels(),
                         .left = weights.data + value * weights.between,
                         .left_stride = shape.inner,
                         .right = elements.data + value * elements.between,
                         .right_stride = shape.inner * kTilesOfPanel,
                         .results = products.data + value * products.between,
                         .result_stride = shape.rows * kTilesOfPanel});
    });
    at::parallel_for(0, shape.rows, 1,
                     [&](int64_t begin, int64_t end) { make_results(block, bias, made, begin, end); });
  });
}

void winograd_weights(const WinogradPass& pass, const float* x, const float* gradient, float* weights, bool adds) {
  const wire::WinogradShape& shape = pass.shape;
  Block block(pass);
  const auto& [sums, elements, gradients] = block.workspace;
  const int64_t columns = block.tiles.panels_of_block * kTilesOfPanel,
                groups = wire::whole_panels(shape.inner) / kVector8Lanes;
  for_each_block(block, [&] {
    at::parallel_for(0, groups, 1,
                     [&](int64_t begin, int64_t end) { transform_elements_by_tiles(block, x, begin, end); });
    at::parallel_for(0, shape.rows, 1,
                     [&](int64_t begin, int64_t end) { transform_all_gradients(block, gradient, begin, end); });
    at::parallel_for(0, kTileValues, 1, [&](int64_t begin, int64_t end) {
      for (int64_t value = begin; value < end; ++value)
        multiply_panels({.rows = shape.rows,
                         .inner = (block.last - block.first) * kVector8Lanes,
                         .panels = groups / 2,
                         .left = gradients.data + value * gradients.between,
                         .left_stride = columns,
                         .right = elements.data + value * elements.between,
                         .right_stride = columns * kPanelColumns,
                         .results = sums.data + value * sums.between,
                         .result_stride = shape.rows * kPanelColumns,
                         .adds = block.first > 0});
    });
  });
  at::parallel_for(0, shape.rows, 1,
                   [&](int64_t begin, int64_t end) { make_weights(block, weights, adds, begin, end); });
}

}  // namespace graphpipe::runtime

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif
