#pragma once
// How the runtime goes over the tiles of a 3x3 convolution by Winograd's method, F(2x2, 3x3) and F(4x4, 3x3) (Lavin &
// Gray, Fast Algorithms for Convolutional Neural Networks, CVPR 2016): a tile of 2x2 results is made of 4x4 elements in
// 16 products of transformed elements and weights instead of 36, a tile of 4x4 results of 6x6 elements in 36 instead of
// 144. The compiler keeps the memory free that it takes, so both know how much of the tiles is in memory at a time. A
// function of the shape alone.

#include <algorithm>
#include <cstdint>

#include "support/integer_math.h"

namespace graphpipe::wire {

/// One pass. Forward and input gradient read planes of `inner` channels and make planes of `rows` channels, which are
/// those that are tiled. The weight gradient reads both: `inner` channels of x, and `rows` channels of the result's
/// gradient, which are tiled.
struct WinogradShape {
  int64_t samples = 0, inner = 0, rows = 0;
  /// Of the tiled planes.
  int64_t height = 0, width = 0;
  /// Results of a tile in either direction: 2 or 4.
  int64_t tile = 2;
  bool makes_weights = false;

  /// The values of a transformed tile.
  constexpr int64_t values() const { return (tile + 2) * (tile + 2); }
};

/// Tiles are transformed in vectors of eight, and multiplied in panels of sixteen.
inline constexpr int64_t kTilesOfVector = 8, kTilesOfPanel = 16;

/// A vector holds eight tiles of one line of tiles, or all tiles of several lines where those are short.
struct WinogradTiles {
  /// Lines of tiles of one sample, and of all; tiles of a line.
  int64_t lines_of_sample = 0, lines = 0, tiles = 0;
  /// The places that a line has in a vector, and the lines of a vector; the vectors of a line that fills one.
  int64_t places = kTilesOfVector, lines_of_vector = 1, vectors_of_line = 1;
  int64_t vectors = 0;
  /// Panels that are in memory at a time.
  int64_t panels_of_block = 0;
  /// Rows whose weights and products are in memory at a time: all, unless one block has all tiles, so that each part of
  /// the weights is transformed once all the same.
  int64_t rows_of_part = 0;
};

constexpr WinogradTiles winograd_tiles(const WinogradShape& shape) {
  // Half of a core's second-level cache of 512 KiB, and no more than the elements and results that are not
  // transformed. Where weights fill such a cache themselves, fewer than four panels of small tiles, or two of large
  // ones, would read them too often.
  constexpr int64_t kBlockBytes = 256 * 1024, kLinesOfPanels = 8, kLargeWeights = 64 * 64, kExpansion = 4;
  WinogradTiles tiles{.lines_of_sample = ceil_div(shape.height, shape.tile),
                      .tiles = ceil_div(shape.width, shape.tile)};
  tiles.lines = shape.samples * tiles.lines_of_sample;
  if (tiles.tiles <= kTilesOfVector / 2) {
    tiles.places = 1;
    while (tiles.places < tiles.tiles) tiles.places *= 2;
    tiles.lines_of_vector = kTilesOfVector / tiles.places;
    tiles.vectors = ceil_div(tiles.lines, tiles.lines_of_vector);
  } else {
    tiles.vectors_of_line = ceil_div(tiles.tiles, kTilesOfVector);
    tiles.vectors = tiles.lines * tiles.vectors_of_line;
  }
  const int64_t bytes_of_panel = shape.values() * kTilesOfPanel * static_cast<int64_t>(sizeof(float));
  const int64_t panels = ceil_div(tiles.vectors, 2);
  const int64_t fitting = std::min(kBlockBytes / (bytes_of_panel * (shape.inner + shape.rows)), panels / kExpansion);
  const int64_t fewest = shape.inner * shape.rows >= kLargeWeights ? kLinesOfPanels / shape.tile : 1;
  // All of them, if their elements are fewer than the weights; and unless weights are made, if a shared cache keeps
  // them, since each part of the weights goes over all: measured on an EPYC of the third generation.
  constexpr int64_t kKeptBytes = 5 * 1024 * 1024;
  const bool are_kept = shape.makes_weights || panels * bytes_of_panel * shape.inner <= kKeptBytes;
  const bool are_few = are_kept && panels * kTilesOfPanel <= shape.rows;
  tiles.panels_of_block = are_few ? panels : std::min(panels, std::max(fewest, fitting));
  // As many as the widest vectors multiply at once.
  constexpr int64_t kRowsOfPart = 16;
  tiles.rows_of_part = tiles.panels_of_block == panels ? std::min(kRowsOfPart, shape.rows) : shape.rows;
  return tiles;
}

/// Channels are multiplied in whole panels too.
constexpr int64_t whole_panels(int64_t channels) { return round_up(channels, kTilesOfPanel); }

/// Each value's matrix begins on another cache line: were the distance a multiple of a page, all would share one set of
/// the first-level cache.
inline constexpr int64_t kFloatsBetweenValues = 16;

/// The floats of a pass beside its operands and result: transformed weights of a part, and of a block the transformed
/// elements and a part's products.
constexpr int64_t winograd_floats(const WinogradShape& shape) {
  const int64_t inner = whole_panels(shape.inner);
  const WinogradTiles passed = winograd_tiles(shape);
  const int64_t tiles = passed.panels_of_block * kTilesOfPanel, rows = passed.rows_of_part;
  return shape.values() * (rows * inner + tiles * (inner + rows) + 3 * kFloatsBetweenValues);
}

}  // namespace graphpipe::wire
