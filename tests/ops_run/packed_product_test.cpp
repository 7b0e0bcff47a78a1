// Products of packed operands: bits of the loops that their header describes, whatever lies where.

#include "runtime/kernels/packed_product.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <tuple>
#include <vector>

namespace graphpipe::runtime {
namespace {

/// Elements are seeded, and a gap of an element lies behind each line.
struct Matrix {
  Matrix(int64_t rows, int64_t columns, bool is_turned, uint32_t seed)
      : elements(static_cast<size_t>((rows + 1) * (columns + 1))) {
    std::mt19937 random(seed);
    for (float& element : elements) element = static_cast<float>(random() % 2001) / 1000 - 1;
    view = {elements.data(), rows, columns, is_turned ? 1 : columns + 1, is_turned ? rows + 1 : 1};
  }
  std::vector<float> elements;
  MatrixView view;
};

float element(const MatrixView& matrix, int64_t row, int64_t column) {
  return matrix.data[row * matrix.row_stride + column * matrix.column_stride];
}

/// The inner index is divided evenly, in multiples of eight.
int64_t inner_part(int64_t inner) {
  const int64_t parts = (inner + kPackedInner - 1) / kPackedInner, even = (inner + parts - 1) / parts;
  return (even + 7) / 8 * 8;
}

float expected_element(const MatrixView& left, const MatrixView& right, int64_t row, int64_t column,
                       const float* base) {
  const int64_t part = inner_part(left.columns);
  float result = 0;
  for (int64_t first = 0; first < left.columns; first += part) {
    float sum = 0;
    for (int64_t i = first; i < std::min(left.columns, first + part); ++i)
      sum = std::fma(element(left, row, i), element(right, i, column), sum);
    if (first > 0) result += sum;
    else result = base == nullptr ? sum : *base + sum;
  }
  return result;
}

/// Elements of the product that are not those of the loops, without a base, with a row of biases, and added.
int64_t differences(const MatrixView& left, const MatrixView& right) {
  const auto count = static_cast<size_t>(left.rows * right.columns);
  const Matrix bias(1, right.columns, false, 3);
  const std::vector<float> start(count, 0.75F);
  std::vector<float> product(count, 99), with_bias(count, 99), sum = start;
  multiply_packed(left, right, nullptr, product.data(), /*adds=*/false);
  multiply_packed(left, right, bias.view.data, with_bias.data(), /*adds=*/false);
  multiply_packed(left, right, nullptr, sum.data(), /*adds=*/true);
  int64_t found = 0;
  for (int64_t row = 0; row < left.rows; ++row)
    for (int64_t column = 0; column < right.columns; ++column) {
      const auto at = static_cast<size_t>(row * right.columns + column);
      found += product[at] != expected_element(left, right, row, column, nullptr);
      found += with_bias[at] != expected_element(left, right, row, column, bias.view.data + column);
      found += sum[at] != expected_element(left, right, row, column, start.data());
    }
  return found;
}

}  // namespace

TEST_CASE("packed products have the bits of sums in order of the inner index, whatever lies where") {
  if (!has_packed_product()) return;
  const std::vector<int64_t> sizes = {1, 2, 5, 6, 7, 8, 9, 13, 16, 17, 31, 32, 33, 47, 70};
  for (size_t m = 0; m < sizes.size(); ++m)
    for (size_t n = 0; n < sizes.size(); ++n)
      for (const bool left_turned : {false, true})
        for (const bool right_turned : {false, true}) {
          const int64_t inner = sizes[(m + 4 * n) % sizes.size()];
          const Matrix left(sizes[m], inner, left_turned, 1), right(inner, sizes[n], right_turned, 2);
          CAPTURE(sizes[m]);
          CAPTURE(inner);
          CAPTURE(sizes[n]);
          CHECK(differences(left.view, right.view) == 0);
        }
}

TEST_CASE("packed products of several blocks of rows and of the inner index have the same bits") {
  if (!has_packed_product()) return;
  for (const auto& [rows, inner, columns] : {std::tuple<int64_t, int64_t, int64_t>{11, kPackedInner, 40},
                                             {11, kPackedInner + 1, 40},
                                             {18, 2 * kPackedInner + 5, 33},
                                             {600, 21, 9}})
    for (const bool is_turned : {false, true}) {
      const Matrix left(rows, inner, is_turned, 1), right(inner, columns, is_turned, 2);
      CAPTURE(rows);
      CAPTURE(inner);
      CHECK(differences(left.view, right.view) == 0);
    }
}

TEST_CASE("an operand of a packed product may show one element many times") {
  if (!has_packed_product()) return;
  const Matrix left(20, 30, false, 1);
  const float one = 1;
  const MatrixView ones{&one, 30, 50, 0, 0};
  CHECK(differences(left.view, ones) == 0);
  CHECK(differences(ones.turned(), left.view.turned()) == 0);
}

}  // namespace graphpipe::runtime
