#pragma once
// Eight tiles of one channel at a time: read from their plane, transformed, and written to it.

#include <algorithm>
#include <cstdint>

#include "runtime/kernels/vectors.h"
#include "wire/winograd.h"

namespace graphpipe::runtime {

// Elements 0, 2, .. 14 and 1, 3, .. 15 of two vectors, in the order of the lanes that costs one instruction: of tiles
// 0, 1, 4, 5, 2, 3, 6, 7. Nothing depends on their order until `first_half` and `second_half` undo it.
GRAPHPIPE_INLINE Vector8 evens(const Vector8& a, const Vector8& b) {
  return __builtin_shufflevector(a, b, 0, 2, 8, 10, 4, 6, 12, 14);
}
GRAPHPIPE_INLINE Vector8 odds(const Vector8& a, const Vector8& b) {
  return __builtin_shufflevector(a, b, 1, 3, 9, 11, 5, 7, 13, 15);
}
GRAPHPIPE_INLINE Vector8 first_half(const Vector8& even, const Vector8& odd) {
  return __builtin_shufflevector(even, odd, 0, 8, 1, 9, 4, 12, 5, 13);
}
GRAPHPIPE_INLINE Vector8 second_half(const Vector8& even, const Vector8& odd) {
  return __builtin_shufflevector(even, odd, 2, 10, 3, 11, 6, 14, 7, 15);
}

/// Planes [samples, channels, height, width].
struct Planes {
  int64_t channels = 0, height = 0, width = 0;
  const float* plane(const float* data, int64_t sample, int64_t channel) const {
    return data + (sample * channels + channel) * height * width;
  }
  float* plane(float* data, int64_t sample, int64_t channel) const {
    return data + (sample * channels + channel) * height * width;
  }
};

/// Rows of the elements of eight tiles, kTile to a tile, and the same rows from the second tile on: a tile reads two
/// elements of the next. Up to kTile + 2 of them.
template <int kTile>
struct TileRows {
  static constexpr int64_t kElements = kTile * kVector8Lanes;
  const float* row[kTile + 2];
  const float* shifted[kTile + 2];
  float copy[kTile + 2][2 * kElements];
};

/// The line of tiles `line` of all samples: its sample and its first row.
struct LinePlace {
  int64_t sample, top;
  LinePlace(const wire::WinogradTiles& tiles, int64_t line, int64_t tile)
      : sample(line / tiles.lines_of_sample), top(line % tiles.lines_of_sample * tile) {}
};

/// Elements [begin, end) of a row; there may be fewer than eight.
GRAPHPIPE_INLINE void copy_elements(const float* from, int64_t begin, int64_t end, float* to) {
  int64_t i = begin;
  for (; i + kVector8Lanes <= end; i += kVector8Lanes) store8(to + i, load8(from + i));
  for (; i < end; ++i) to[i] = from[i];
}

/// Of lines that fill vectors: in place if all elements lie inside the plane, else a copy with zeros around it.
template <int kTile, int kRows>
GRAPHPIPE_INLINE void read_part_of_line(const wire::WinogradTiles& tiles, const Planes& planes, const float* data,
                                        int64_t channel, int64_t pad_top, int64_t pad_left, int64_t vector,
                                        TileRows<kTile>& rows) {
  // The next tile whole: vectors of it are loaded.
  constexpr int64_t kElements = TileRows<kTile>::kElements + (kRows > kTile ? kTile : 0);
  constexpr int64_t kVectors = ceil_div(kElements, kVector8Lanes);
  const LinePlace line(tiles, vector / tiles.vectors_of_line, kTile);
  const int64_t x = vector % tiles.vectors_of_line * kTile * kVector8Lanes - pad_left, y = line.top - pad_top;
  const float* const first = planes.plane(data, line.sample, channel) + y * planes.width + x;
  const bool is_inside = x >= 0 && x + kElements <= planes.width && y >= 0 && y + kRows <= planes.height;
  const int64_t begin = std::max<int64_t>(0, -x), end = std::min(kElements, planes.width - x);
  for (int row = 0; row < kRows; ++row) {
    const float* const from = first + row * planes.width;
    rows.row[row] = is_inside ? from : rows.copy[row];
    rows.shifted[row] = rows.row[row] + kTile;
    if (is_inside) continue;
    for (int64_t part = 0; part < kVectors; ++part) store8(rows.copy[row] + part * kVector8Lanes, Vector8{});
    if (y + row >= 0 && y + row < planes.height) copy_elements(from, begin, end, rows.copy[row]);
  }
}

/// Of several short lines: a copy of their rows side by side, and another from the second tile of each on.
template <int kTile, int kRows>
GRAPHPIPE_INLINE void read_short_lines(const wire::WinogradTiles& tiles, const Planes& planes, const float* data,
                                       int64_t channel, int64_t pad_top, int64_t pad_left, int64_t vector,
                                       TileRows<kTile>& rows) {
  constexpr int64_t kElements = TileRows<kTile>::kElements;
  for (int row = 0; row < kRows; ++row) {
    rows.row[row] = rows.copy[row];
    rows.shifted[row] = rows.copy[row] + kElements;
    for (int part = 0; part < 2 * kTile; ++part) store8(rows.copy[row] + part * kVector8Lanes, Vector8{});
  }
  const int64_t first = vector * tiles.lines_of_vector, last = std::min(first + tiles.lines_of_vector, tiles.lines);
  for (int64_t index = first; index < last; ++index) {
    const LinePlace line(tiles, index, kTile);
    const int64_t y = line.top - pad_top, place = (index - first) * kTile * tiles.places;
    const float* const from = planes.plane(data, line.sample, channel) + y * planes.width - pad_left;
    const auto copy = [&](int row, int64_t skipped) __attribute__((always_inline)) {
      const int64_t begin = std::max<int64_t>(0, pad_left - skipped);
      const int64_t end = std::min(planes.width + pad_left - skipped, kTile * tiles.places);
      float* const to = rows.copy[row] + (skipped > 0 ? kElements : 0) + place;
      for (int64_t i = begin; i < end; ++i) to[i] = from[row * planes.width + skipped + i];
    };
    for (int row = 0; row < kRows; ++row) {
      if (y + row < 0 || y + row >= planes.height) continue;
      copy(row, 0);
      if (kRows > kTile) copy(row, kTile);
    }
  }
}

template <int kTile, int kRows>
GRAPHPIPE_INLINE void read_rows(const wire::WinogradTiles& tiles, const Planes& planes, const float* data,
                                int64_t channel, int64_t pad_top, int64_t pad_left, int64_t vector,
                                TileRows<kTile>& rows) {
  if (tiles.lines_of_vector == 1)
    read_part_of_line<kTile, kRows>(tiles, planes, data, channel, pad_top, pad_left, vector, rows);
  else read_short_lines<kTile, kRows>(tiles, planes, data, channel, pad_top, pad_left, vector, rows);
}

/// The elements 0 .. kTile - 1 of eight tiles that lie side by side, each a vector of the tiles in an order that
/// `side_by_side` undoes.
GRAPHPIPE_INLINE void by_place(const float* row, Vector8 (&elements)[2]) {
  const Vector8 a = load8(row), b = load8(row + kVector8Lanes);
  elements[0] = evens(a, b);
  elements[1] = odds(a, b);
}
GRAPHPIPE_INLINE void by_place(const float* row, Vector8 (&elements)[4]) {
  Vector8 left[2], right[2];
  by_place(row, left);
  by_place(row + 2 * kVector8Lanes, right);
  for (int odd = 0; odd < 2; ++odd) {
    elements[odd] = evens(left[odd], right[odd]);
    elements[2 + odd] = odds(left[odd], right[odd]);
  }
}
GRAPHPIPE_INLINE void side_by_side(const Vector8 (&elements)[2], float* row) {
  store8(row, first_half(elements[0], elements[1]));
  store8(row + kVector8Lanes, second_half(elements[0], elements[1]));
}
GRAPHPIPE_INLINE void side_by_side(const Vector8 (&elements)[4], float* row) {
  Vector8 left[2], right[2];
  for (int odd = 0; odd < 2; ++odd) {
    left[odd] = first_half(elements[odd], elements[2 + odd]);
    right[odd] = second_half(elements[odd], elements[2 + odd]);
  }
  side_by_side(left, row);
  side_by_side(right, row + 2 * kVector8Lanes);
}

/// The kRows x kRows elements of eight tiles: those of tiles, or with two of the next.
template <int kTile, int kRows>
GRAPHPIPE_INLINE void gather_tiles(const TileRows<kTile>& rows, Vector8 (&elements)[kRows][kRows]) {
  for (int row = 0; row < kRows; ++row) {
    Vector8 own[kTile];
    by_place(rows.row[row], own);
    for (int i = 0; i < kTile; ++i) elements[row][i] = own[i];
    if constexpr (kRows > kTile) {
      by_place(rows.shifted[row], own);
      for (int i = 0; i < 2; ++i) elements[row][kTile + i] = own[i];
    }
  }
}

/// Writes the results of eight tiles; what lies outside of the plane is left out.
template <int kTile>
GRAPHPIPE_INLINE void write_tiles(const wire::WinogradTiles& tiles, const Planes& planes, float* data, int64_t channel,
                                  int64_t vector, const Vector8 (&results)[kTile][kTile]) {
  float copy[kTile][kTile * kVector8Lanes];
  for (int row = 0; row < kTile; ++row) side_by_side(results[row], copy[row]);
  const bool is_short = tiles.lines_of_vector > 1;
  const int64_t first = is_short ? vector * tiles.lines_of_vector : vector / tiles.vectors_of_line;
  const int64_t last = std::min(first + tiles.lines_of_vector, tiles.lines);
  const int64_t x = is_short ? 0 : vector % tiles.vectors_of_line * kTile * kVector8Lanes;
  const int64_t width = std::min(planes.width - x, kTile * tiles.places);
  for (int64_t index = first; index < last; ++index) {
    const LinePlace line(tiles, index, kTile);
    float* const to = planes.plane(data, line.sample, channel) + line.top * planes.width + x;
    const int64_t begin = (index - first) * kTile * tiles.places;
    for (int row = 0; row < kTile && line.top + row < planes.height; ++row)
      copy_elements(copy[row] + begin, 0, width, to + row * planes.width);
  }
}

}  // namespace graphpipe::runtime
