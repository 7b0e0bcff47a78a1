#include "runtime/kernels/winograd.h"

#include <ATen/Parallel.h>

#include "runtime/kernels/panel_product.h"
#include "runtime/kernels/winograd_tiles.h"
#include "runtime/kernels/winograd_transforms.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3", "no-tree-loop-distribute-patterns")
#endif

namespace graphpipe::runtime {
namespace {

using wire::kFloatsBetweenValues;
using wire::kTilesOfPanel;

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
      next += pass.shape.values() * part.between;
      return part;
    };
    weights = take(tiles.rows_of_part * inner);
    elements = take(columns * inner);
    products = take(columns * tiles.rows_of_part);
  }
};

/// One pass over the tiles, and the block of vectors [first, last) and the part of rows [first_row, last_row) that are
/// in memory.
struct Block {
  const WinogradPass& pass;
  wire::WinogradTiles tiles;
  Workspace workspace;
  int64_t first = 0, last = 0, first_row = 0, last_row = 0;

  explicit Block(const WinogradPass& of) : pass(of), tiles(wire::winograd_tiles(of.shape)), workspace(of, tiles) {}
  int64_t panels() const { return (last - first + 1) / 2; }
  int64_t rows() const { return last_row - first_row; }
  bool is_last() const { return last == tiles.vectors; }
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

template <typename Work>
void for_each_part(Block& block, const Work& work) {
  const int64_t rows = block.pass.shape.rows;
  for (block.first_row = 0; block.first_row < rows; block.first_row = block.last_row) {
    block.last_row = std::min(block.first_row + block.tiles.rows_of_part, rows);
    work();
  }
}

/// Calls `work(first, last)` for the part's rows, divided among threads.
template <typename Work>
void for_rows(const Block& block, const Work& work) {
  at::parallel_for(block.first_row, block.last_row, 1, work);
}

/// The values of eight tiles.
template <int kTile>
using TileVectors = Vector8[kTile + 2][kTile + 2];

template <int kValues>
GRAPHPIPE_INLINE void store_values(const Vector8 (&values)[kValues][kValues], float* to, int64_t between) {
  for (int i = 0; i < kValues; ++i)
    for (int j = 0; j < kValues; ++j) store8(to + (i * kValues + j) * between, values[i][j]);
}
template <int kValues>
GRAPHPIPE_INLINE void load_values(const float* from, int64_t between, Vector8 (&values)[kValues][kValues]) {
  for (int i = 0; i < kValues; ++i)
    for (int j = 0; j < kValues; ++j) values[i][j] = load8(from + (i * kValues + j) * between);
}

/// Eight weights of 3x3, the first at `from` and each `stride` floats after the one before, of which `count` exist.
GRAPHPIPE_INLINE void load_weights(const float* from, int64_t stride, int64_t count, bool is_turned,
                                   Vector8 (&weights)[3][3]) {
  float lanes[kElementsOfWeight][kVector8Lanes] = {};
  for (int64_t lane = 0; lane < count; ++lane)
    for (int64_t i = 0; i < kElementsOfWeight; ++i)
      lanes[i][lane] = from[lane * stride + (is_turned ? kElementsOfWeight - 1 - i : i)];
  for (int64_t i = 0; i < kElementsOfWeight; ++i) weights[i / 3][i % 3] = load8(lanes[i]);
}

/// Eight weights of a row, from channel `inner` on, to [value][row][inner].
template <int kTile>
GRAPHPIPE_INLINE void transform_some_weights(const Block& block, const float* weight, bool is_turned, int64_t row,
                                             int64_t inner) {
  const wire::WinogradShape& shape = block.pass.shape;
  const Part& to = block.workspace.weights;
  const int64_t row_stride = kElementsOfWeight * (is_turned ? 1 : shape.inner);
  const int64_t inner_stride = kElementsOfWeight * (is_turned ? shape.rows : 1);
  const int64_t count = std::min(kVector8Lanes, shape.inner - inner);
  Vector8 weights[3][3];
  load_weights(weight + row * row_stride + inner * inner_stride, inner_stride, count, is_turned, weights);
  TileVectors<kTile> values;
  transform_both_ways<WinogradTransform<kTile>::weights>(weights, values);
  float* const place = to.data + (row - block.first_row) * shape.inner + inner;
  if (count == kVector8Lanes) return store_values(values, place, to.between);
  for (int64_t value = 0; value < shape.values(); ++value)
    for (int64_t lane = 0; lane < count; ++lane)
      place[value * to.between + lane] = values[value / (kTile + 2)][value % (kTile + 2)][lane];
}

/// Rows [begin, end). Where weights are turned, those of consecutive rows lie together: all rows of a cache line's
/// channels come before the next channels.
template <int kTile>
GRAPHPIPE_AVX2 void transform_all_weights(const Block& block, const float* weight, bool is_turned, int64_t begin,
                                          int64_t end) {
  const int64_t channels = block.pass.shape.inner, together = is_turned ? 2 * kVector8Lanes : channels;
  for (int64_t first = 0; first < channels; first += together)
    for (int64_t row = begin; row < end; ++row)
      for (int64_t inner = first; inner < std::min(first + together, channels); inner += kVector8Lanes)
        transform_some_weights<kTile>(block, weight, is_turned, row, inner);
}

/// Channels [begin, end) of the block's elements to [value][panel][channel][tile of the panel].
template <int kTile>
GRAPHPIPE_AVX2 void transform_all_elements(const Block& block, const float* read, int64_t begin, int64_t end) {
  const WinogradPass& pass = block.pass;
  const Part& to = block.workspace.elements;
  TileRows<kTile> rows;
  TileVectors<kTile> elements, values;
  for (int64_t channel = begin; channel < end; ++channel)
    for (int64_t vector = block.first; vector < block.last; ++vector) {
      read_rows<kTile, kTile + 2>(block.tiles, block.read(), read, channel, pass.pad_top, pass.pad_left, vector, rows);
      gather_tiles(rows, elements);
      transform_both_ways<WinogradTransform<kTile>::elements>(elements, values);
      const int64_t place = vector - block.first;
      store_values(values,
                   to.data + (place / 2 * pass.shape.inner + channel) * kTilesOfPanel + place % 2 * kVector8Lanes,
                   to.between);
    }
}

/// Products [value][panel][row][tile of the panel] to rows [begin, end) of the planes.
template <int kTile>
GRAPHPIPE_AVX2 void make_results(const Block& block, const float* bias, float* made, int64_t begin, int64_t end) {
  const Part& from = block.workspace.products;
  TileVectors<kTile> products;
  Vector8 results[kTile][kTile];
  for (int64_t row = begin; row < end; ++row)
    for (int64_t vector = block.first; vector < block.last; ++vector) {
      const int64_t place = vector - block.first;
      load_values(
          from.data + (place / 2 * block.rows() + row - block.first_row) * kTilesOfPanel + place % 2 * kVector8Lanes,
          from.between, products);
      transform_both_ways<WinogradTransform<kTile>::results>(products, results);
      if (bias != nullptr)
        for (auto& line : results)
          for (Vector8& result : line) result += bias[row];
      write_tiles(block.tiles, block.tiled(), made, row, vector, results);
    }
}

/// Groups [begin, end) of eight channels to [value][panel of channels][tile of the block][channel of the panel].
template <int kTile>
GRAPHPIPE_AVX2 void transform_elements_by_tiles(const Block& block, const float* x, int64_t begin, int64_t end) {
  const WinogradPass& pass = block.pass;
  const Part& to = block.workspace.elements;
  const int64_t columns = block.tiles.panels_of_block * kTilesOfPanel;
  constexpr int64_t kLine = kTile + 2;
  TileRows<kTile> rows;
  TileVectors<kTile> elements, values;
  for (int64_t group = begin; group < end; ++group)
    for (int64_t vector = block.first; vector < block.last; ++vector) {
      Vector8 squares[kLine * kLine][kVector8Lanes] = {};
      for (int64_t lane = 0; lane < std::min(kVector8Lanes, pass.shape.inner - group * kVector8Lanes); ++lane) {
        read_rows<kTile, kTile + 2>(block.tiles, block.read(), x, group * kVector8Lanes + lane, pass.pad_top,
                                    pass.pad_left, vector, rows);
        gather_tiles(rows, elements);
        transform_both_ways<WinogradTransform<kTile>::elements>(elements, values);
        for (int64_t value = 0; value < kLine * kLine; ++value)
          squares[value][lane] = values[value / kLine][value % kLine];
      }
      float* const place = to.data + (group / 2 * columns + (vector - block.first) * kVector8Lanes) * kPanelColumns +
                           group % 2 * kVector8Lanes;
      for (int64_t value = 0; value < kLine * kLine; ++value) {
        transpose(squares[value]);
        for (int64_t tile = 0; tile < kVector8Lanes; ++tile)
          store8(place + value * to.between + tile * kPanelColumns, squares[value][tile]);
      }
    }
}

/// Rows [begin, end) of the block's gradients to [value][row][tile of the block].
template <int kTile>
GRAPHPIPE_AVX2 void transform_all_gradients(const Block& block, const float* gradient, int64_t begin, int64_t end) {
  const Part& to = block.workspace.products;
  const int64_t columns = block.tiles.panels_of_block * kTilesOfPanel;
  TileRows<kTile> rows;
  Vector8 gradients[kTile][kTile];
  TileVectors<kTile> values;
  for (int64_t row = begin; row < end; ++row)
    for (int64_t vector = block.first; vector < block.last; ++vector) {
      read_rows<kTile, kTile>(block.tiles, block.tiled(), gradient, row, 0, 0, vector, rows);
      gather_tiles(rows, gradients);
      transform_both_ways<WinogradTransform<kTile>::gradients>(gradients, values);
      store_values(values, to.data + (row - block.first_row) * columns + (vector - block.first) * kVector8Lanes,
                   to.between);
    }
}

/// Sums [value][panel of channels][row][channel of the panel] to rows [begin, end) of the weights' gradient.
template <int kTile>
GRAPHPIPE_AVX2 void make_weights(const Block& block, float* weights, bool adds, int64_t begin, int64_t end) {
  const wire::WinogradShape& shape = block.pass.shape;
  const Part& from = block.workspace.weights;
  TileVectors<kTile> products;
  Vector8 gradients[3][3];
  for (int64_t row = begin; row < end; ++row)
    for (int64_t channel = 0; channel < shape.inner; channel += kVector8Lanes) {
      load_values(from.data + (channel / kPanelColumns * block.rows() + row - block.first_row) * kPanelColumns +
                      channel % kPanelColumns,
                  from.between, products);
      transform_both_ways<WinogradTransform<kTile>::weight_gradients>(products, gradients);
      float* const to = weights + (row * shape.inner + channel) * kElementsOfWeight;
      for (int64_t lane = 0; lane < std::min(kVector8Lanes, shape.inner - channel); ++lane)
        for (int64_t i = 0; i < kElementsOfWeight; ++i) {
          float& place = to[lane * kElementsOfWeight + i];
          const float gradient = gradients[i / 3][i % 3][lane];
          place = adds ? place + gradient : gradient;
        }
    }
}

template <int kTile>
void planes_by_tiles(const WinogradPass& pass, const float* read, const float* weight, bool is_turned,
                     const float* bias, float* made) {
  const wire::WinogradShape& shape = pass.shape;
  Block block(pass);
  const auto& [weights, elements, products] = block.workspace;
  const auto multiply_value = [&](int64_t value) {
    multiply_panels({.rows = block.rows(),
                     .inner = shape.inner,
                     .panels = block.panels(),
                     .left = weights.data + value * weights.between,
                     .left_stride = shape.inner,
                     .right = elements.data + value * elements.between,
                     .right_stride = shape.inner * kTilesOfPanel,
                     .results = products.data + value * products.between,
                     .result_stride = block.rows() * kTilesOfPanel});
  };
  for_each_block(block, [&] {
    at::parallel_for(0, shape.inner, 1,
                     [&](int64_t begin, int64_t end) { transform_all_elements<kTile>(block, read, begin, end); });
    for_each_part(block, [&] {
      if (block.first == 0)
        for_rows(block, [&](int64_t begin, int64_t end) {
          transform_all_weights<kTile>(block, weight, is_turned, begin, end);
        });
      at::parallel_for(0, shape.values(), 1, [&](int64_t begin, int64_t end) {
        for (int64_t value = begin; value < end; ++value) multiply_value(value);
      });
      for_rows(block, [&](int64_t begin, int64_t end) { make_results<kTile>(block, bias, made, begin, end); });
    });
  });
}

template <int kTile>
void weights_by_tiles(const WinogradPass& pass, const float* x, const float* gradient, float* weights, bool adds) {
  const wire::WinogradShape& shape = pass.shape;
  Block block(pass);
  const auto& [sums, elements, gradients] = block.workspace;
  const int64_t columns = block.tiles.panels_of_block * kTilesOfPanel,
                groups = wire::whole_panels(shape.inner) / kVector8Lanes;
  const auto multiply_value = [&](int64_t value) {
    multiply_panels({.rows = block.rows(),
                     .inner = (block.last - block.first) * kVector8Lanes,
                     .panels = groups / 2,
                     .left = gradients.data + value * gradients.between,
                     .left_stride = columns,
                     .right = elements.data + value * elements.between,
                     .right_stride = columns * kPanelColumns,
                     .results = sums.data + value * sums.between,
                     .result_stride = block.rows() * kPanelColumns,
                     .adds = block.first > 0});
  };
  for_each_block(block, [&] {
    at::parallel_for(0, groups, 1,
                     [&](int64_t begin, int64_t end) { transform_elements_by_tiles<kTile>(block, x, begin, end); });
    for_each_part(block, [&] {
      for_rows(block, [&](int64_t begin, int64_t end) { transform_all_gradients<kTile>(block, gradient, begin, end); });
      at::parallel_for(0, shape.values(), 1, [&](int64_t begin, int64_t end) {
        for (int64_t value = begin; value < end; ++value) multiply_value(value);
      });
      if (block.is_last())
        for_rows(block, [&](int64_t begin, int64_t end) { make_weights<kTile>(block, weights, adds, begin, end); });
    });
  });
}

}  // namespace

bool has_winograd() { return has_avx2(); }

void winograd_planes(const WinogradPass& pass, const float* read, const float* weight, bool is_turned,
                     const float* bias, float* made) {
  if (pass.shape.tile == 2) return planes_by_tiles<2>(pass, read, weight, is_turned, bias, made);
  planes_by_tiles<4>(pass, read, weight, is_turned, bias, made);
}

void winograd_weights(const WinogradPass& pass, const float* x, const float* gradient, float* weights, bool adds) {
  if (pass.shape.tile == 2) return weights_by_tiles<2>(pass, x, gradient, weights, adds);
  weights_by_tiles<4>(pass, x, gradient, weights, adds);
}

}  // namespace graphpipe::runtime

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif
