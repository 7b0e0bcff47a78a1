#pragma once
// Values that are known at import time: shapes and what is computed from them, small constants.
//
// A number may contain the batch: whole * B^power (integers and booleans) or real * B^power (floats). So Shape, Gather,
// Concat, Mul, Equal, Where, ... on shapes are computed exactly, for every sample count at once. Anything without such
// a form (B + 1) is not known.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ir/types.h"

namespace graphpipe::frontend {

struct Number {
  bool floating = false;
  double real = 0;
  int64_t whole = 0;
  int power = 0;

  static Number of_whole(int64_t value, int power = 0) { return {false, 0, value, value == 0 ? 0 : power}; }
  static Number of_real(double value, int power = 0) { return {true, value, 0, value == 0 ? 0 : power}; }
  static Number of_dim(ir::Dim dim) { return of_whole(dim.factor, dim.power); }
  bool is_fixed() const { return power == 0; }
  /// The factor as a double, whatever the kind.
  double factor() const { return floating ? real : static_cast<double>(whole); }
  bool operator==(const Number&) const = default;
};

/// Exact results, or nullopt if the result does not have the form factor * B^power (or an integer overflows).
/// Comparisons hold for every sample count from 2 on: exporters assume the same.
std::optional<Number> add(const Number& a, const Number& b);
std::optional<Number> subtract(const Number& a, const Number& b);
std::optional<Number> multiply(const Number& a, const Number& b);
/// Integers truncate toward zero, as ONNX's Div does.
std::optional<Number> divide(const Number& a, const Number& b);
/// `c_sign`: the result has the dividend's sign (fmod = 1), else the divisor's.
std::optional<Number> modulo(const Number& a, const Number& b, bool c_sign);
std::optional<bool> equal(const Number& a, const Number& b);
std::optional<bool> less(const Number& a, const Number& b);

/// As the type stores it, so that folding gives what running would: rounded if it is floating. Nullopt if the type is
/// small and cannot represent the integer, which running would wrap.
std::optional<Number> stored(ir::DType dtype, Number number);

struct Known {
  ir::DType dtype = ir::DType::kInt64;
  /// Dims contain the batch only if all elements are equal.
  ir::Shape shape;
  /// One element represents all of them, so a large filled tensor costs nothing.
  bool uniform = false;
  std::vector<Number> elements;

  const Number& element(size_t i) const { return elements[uniform ? 0 : i]; }
  static Known scalar(ir::DType dtype, Number number) { return {dtype, {}, true, {number}}; }
  static Known list(std::vector<Number> numbers);
};

/// Tensors with more different elements stay nodes and parameters.
inline constexpr int64_t kMaxKnownElements = 4096;
/// Shapes are lists of at most this many dims; ONNX graphs have at most 64.
inline constexpr int64_t kMaxRank = 64;

/// The number of elements if it is fixed and at most kMaxKnownElements.
std::optional<size_t> known_count(const ir::Shape& shape);
/// From dense little-endian bytes; nullopt if the type or size is not supported.
std::optional<Known> decode_known(ir::DType dtype, const ir::Shape& shape, const std::string& bytes);
/// To dense little-endian bytes. Needs: all powers 0 and fixed dims, at most kMaxKnownElements elements.
std::string encode_known(const Known& known);
/// The elements as integers, or as dims; nullopt if one is of another kind.
std::optional<std::vector<int64_t>> whole_numbers(const Known& known);
std::optional<ir::Shape> as_dims(const Known& known);
/// Numpy broadcasting, dim by dim; a dim that contains the batch only broadcasts with itself or 1.
std::optional<ir::Shape> broadcast(const ir::Shape& a, const ir::Shape& b);

}  // namespace graphpipe::frontend
