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

/// Up to four rows of the elements of eight tiles, two to a tile and 16 to a row, and the same rows from the third
/// element on.
struct TileRows {
  const float* row[4];
  const float* shifted[4];
  float copy[4][2 * kVector8Lanes * 2];
};

/// The line of tiles `line` of all samples: its sample and its first row.
struct LinePlace {
  int64_t sample, top;
  LinePlace(const wire::WinogradTiles& tiles, int64_t line)
      : sample(line / tiles.lines_of_sample), top(line % tiles.lines_of_sample * 2) {}
};

/// Elements [begin, end) of a row; there may be fewer than eight.
GRAPHPIPE_INLINE void copy_elements(const float* from, int64_t begin, int64_t end, float* to) {
  int64_t i = begin;
  for (; i + kVector8Lanes <= end; i += kVector8Lanes) store8(to + i, load8(from + i));
  for (; i < end; ++i) to[i] = from[i];
}

/// Of lines that fill vectors: in place if all elements lie inside the plane, else a copy with zeros around it.
template <int kRows>
GRAPHPIPE_INLINE void read_part_of_line(const wire::WinogradTiles& tiles, const Planes& planes, const float* data,
                                        int64_t channel, int64_t pad_top, int64_t pad_left, int64_t vector,
                                        TileRows& rows) {
  constexpr int64_t kElements = kRows == 4 ? 2 * kVector8Lanes + 2 : 2 * kVector8Lanes;
  const LinePlace line(tiles, vector / tiles.vectors_of_line);
  const int64_t x = vector % tiles.vectors_of_line * 2 * kVector8Lanes - pad_left, y = line.top - pad_top;
  const float* const first = planes.plane(data, line.sample, channel) + y * planes.width + x;
  const bool is_inside = x >= 0 && x + kElements <= planes.width && y >= 0 && y + kRows <= planes.height;
  const int64_t begin = std::max<int64_t>(0, -x), end = std::min(kElements, planes.width - x);
  for (int row = 0; row < kRows; ++row) {
    const float* const from = first + row * planes.width;
    rows.row[row] = is_inside ? from : rows.copy[row];
    rows.shifted[row] = rows.row[row] + 2;
    if (is_inside) continue;
    for (int part = 0; part < 3; ++part) store8(rows.copy[row] + part * kVector8Lanes, Vector8{});
    if (y + row >= 0 && y + row < planes.height) copy_elements(from, begin, end, rows.copy[row]);
  }
}

/// Of several short lines: a copy of their rows side by side, and another from the third element of each on.
template <int kRows>
GRAPHPIPE_INLINE void read_short_lines(const wire::WinogradTiles& tiles, const Planes& planes, const float* data,
                                       int64_t channel, int64_t pad_top, int64_t pad_left, int64_t vector,
                                       TileRows& rows) {
  for (int row = 0; row < kRows; ++row) {
    rows.row[row] = rows.copy[row];
    rows.shifted[row] = rows.copy[row] + 2 * kVector8Lanes;
    for (int part = 0; part < 4; ++part) store8(rows.copy[row] + part * kVector8Lanes, Vector8{});
  }
  const int64_t first = vector * tiles.lines_of_vector, last = std::min(first + tiles.lines_of_vector, tiles.lines);
  for (int64_t index = first; index < last; ++index) {
    const LinePlace line(tiles, index);
    const int64_t y = line.top - pad_top, place = (index - first) * 2 * tiles.places;
    const float* const from = planes.plane(data, line.sample, channel) + y * planes.width - pad_left;
    const auto copy = [&](int row, int64_t skipped) __attribute__((always_inline)) {
      const int64_t begin = std::max<int64_t>(0, pad_left - skipped);
      const int64_t end = std::min(planes.width + pad_left - skipped, 2 * tiles.places);
      float* const to = rows.copy[row] + (skipped > 0 ? 2 * kVector8Lanes : 0) + place;
      for (int64_t i = begin; i < end; ++i) to[i] = from[row * planes.width + skipped + i];
    };
    for (int row = 0; row < kRows; ++row) {
      if (y + row < 0 || y + row >= planes.height) continue;
      copy(row, 0);
      if (kRows == 4) copy(row, 2);
    }
  }
}

template <int kRows>
GRAPHPIPE_INLINE void read_rows(const wire::WinogradTiles& tiles, const Planes& planes, const float* data,
                                int64_t channel, int64_t pad_top, int64_t pad_left, int64_t vector, TileRows& rows) {
  if (tiles.lines_of_vector == 1)
    read_part_of_line<kRows>(tiles, planes, data, channel, pad_top, pad_left, vector, rows);
  else read_short_lines<kRows>(tiles, planes, data, channel, pad_top, pad_left, vector, rows);
}

/// Writes two rows of results; what lies outside of the plane is left out.
GRAPHPIPE_INLINE void write_rows(const wire::WinogradTiles& tiles, const Planes& planes, float* data, int64_t channel,
                                 int64_t vector, const Vector8 (&results)[2][2]) {
  float copy[2][2 * kVector8Lanes];
  for (int row = 0; row < 2; ++row)
    for (int part = 0; part < 2; ++part) store8(copy[row] + part * kVector8Lanes, results[row][part]);
  const bool is_short = tiles.lines_of_vector > 1;
  const int64_t first = is_short ? vector * tiles.lines_of_vector : vector / tiles.vectors_of_line;
  const int64_t last = std::min(first + tiles.lines_of_vector, tiles.lines);
  const int64_t x = is_short ? 0 : vector % tiles.vectors_of_line * 2 * kVector8Lanes;
  const int64_t width = std::min(planes.width - x, 2 * tiles.places);
  for (int64_t index = first; index < last; ++index) {
    const LinePlace line(tiles, index);
    float* const to = planes.plane(data, line.sample, channel) + line.top * planes.width + x;
    const float* const from = copy[0] + (index - first) * 2 * tiles.places;
    copy_elements(from, 0, width, to);
    if (line.top + 1 < planes.height) copy_elements(from + 2 * kVector8Lanes, 0, width, to + planes.width);
  }
}

/// The values of eight tiles.
struct TileVectors {
  Vector8 of[4][4];
};

/// B^T d B of 4x4 elements d.
GRAPHPIPE_INLINE TileVectors transform_elements(const TileRows& rows) {
  Vector8 across[4][4];
  for (int i = 0; i < 4; ++i) {
    const Vector8 a = load8(rows.row[i]), b = load8(rows.row[i] + kVector8Lanes);
    const Vector8 c = load8(rows.shifted[i]), d = load8(rows.shifted[i] + kVector8Lanes);
    const Vector8 first = evens(a, b), second = odds(a, b), third = evens(c, d), fourth = odds(c, d);
    across[i][0] = first - third;
    across[i][1] = second + third;
    across[i][2] = third - second;
    across[i][3] = second - fourth;
  }
  TileVectors tile;
  for (int j = 0; j < 4; ++j) {
    tile.of[0][j] = across[0][j] - across[2][j];
    tile.of[1][j] = across[1][j] + across[2][j];
    tile.of[2][j] = across[2][j] - across[1][j];
    tile.of[3][j] = across[1][j] - across[3][j];
  }
  return tile;
}

/// A g A^T of 2x2 gradients g.
GRAPHPIPE_INLINE TileVectors transform_gradients(const TileRows& rows) {
  Vector8 across[2][4];
  for (int i = 0; i < 2; ++i) {
    const Vector8 a = load8(rows.row[i]), b = load8(rows.row[i] + kVector8Lanes);
    const Vector8 first = evens(a, b), second = odds(a, b);
    across[i][0] = first;
    across[i][1] = first + second;
    across[i][2] = first - second;
    across[i][3] = -second;
  }
  TileVectors tile;
  for (int j = 0; j < 4; ++j) {
    tile.of[0][j] = across[0][j];
    tile.of[1][j] = across[0][j] + across[1][j];
    tile.of[2][j] = across[0][j] - across[1][j];
    tile.of[3][j] = -across[1][j];
  }
  return tile;
}

/// A^T m A of products m whose values lie `between` floats from each other: two rows of 16 results, plus `bias`.
GRAPHPIPE_INLINE void results_of_products(const float* products, int64_t between, float bias,
                                          Vector8 (&results)[2][2]) {
  Vector8 down[2][4];
  for (int j = 0; j < 4; ++j) {
    const Vector8 first = load8(products + j * between), second = load8(products + (4 + j) * between);
    const Vector8 third = load8(products + (8 + j) * between), fourth = load8(products + (12 + j) * between);
    down[0][j] = first + second + third;
    down[1][j] = second - third - fourth;
  }
  for (int i = 0; i < 2; ++i) {
    const Vector8 even = down[i][0] + down[i][1] + down[i][2] + bias;
    const Vector8 odd = down[i][1] - down[i][2] - down[i][3] + bias;
    results[i][0] = first_half(even, odd);
    results[i][1] = second_half(even, odd);
  }
}

/// G w G^T of 3x3 weights w.
GRAPHPIPE_INLINE TileVectors transform_weights(const Vector8 (&weights)[9]) {
  Vector8 down[4][3];
  for (int j = 0; j < 3; ++j) {
    const Vector8 outer = weights[j] + weights[6 + j];
    down[0][j] = weights[j];
    down[1][j] = 0.5F * (outer + weights[3 + j]);
    down[2][j] = 0.5F * (outer - weights[3 + j]);
    down[3][j] = weights[6 + j];
  }
  TileVectors tile;
  for (int i = 0; i < 4; ++i) {
    const Vector8 outer = down[i][0] + down[i][2];
    tile.of[i][0] = down[i][0];
    tile.of[i][1] = 0.5F * (outer + down[i][1]);
    tile.of[i][2] = 0.5F * (outer - down[i][1]);
    tile.of[i][3] = down[i][2];
  }
  return tile;
}

/// G^T m G of products m: gradients of 3x3 weights.
GRAPHPIPE_INLINE void gradients_of_products(const float* products, int64_t between, Vector8 (&gradients)[9]) {
  Vector8 down[3][4];
  for (int j = 0; j < 4; ++j) {
    const Vector8 first = load8(products + j * between), second = load8(products + (4 + j) * between);
    const Vector8 third = load8(products + (8 + j) * between), fourth = load8(products + (12 + j) * between);
    down[0][j] = first + 0.5F * (second + third);
    down[1][j] = 0.5F * (second - third);
    down[2][j] = 0.5F * (second + third) + fourth;
  }
  for (int i = 0; i < 3; ++i) {
    gradients[i * 3] = down[i][0] + 0.5F * (down[i][1] + down[i][2]);
    gradients[i * 3 + 1] = 0.5F * (down[i][1] - down[i][2]);
    gradients[i * 3 + 2] = 0.5F * (down[i][1] + down[i][2]) + down[i][3];
  }
}

}  // namespace graphpipe::runtime
