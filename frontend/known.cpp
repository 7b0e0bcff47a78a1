#include "frontend/known.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "frontend/selection.h"
#include "support/half_float.h"

namespace graphpipe::frontend {

using ir::Dim;
using ir::DType;

std::optional<Number> add(const Number& a, const Number& b) {
  if (a.factor() == 0) return b;
  if (b.factor() == 0) return a;
  if (a.power != b.power) return std::nullopt;
  if (a.floating) return Number::of_real(a.real + b.real, a.power);
  int64_t sum = 0;
  if (__builtin_add_overflow(a.whole, b.whole, &sum)) return std::nullopt;
  return Number::of_whole(sum, a.power);
}

std::optional<Number> subtract(const Number& a, const Number& b) {
  Number negated = b;
  negated.real = -b.real;
  if (__builtin_sub_overflow(int64_t{0}, b.whole, &negated.whole)) return std::nullopt;
  return add(a, negated);
}

std::optional<Number> multiply(const Number& a, const Number& b) {
  if (!a.is_fixed() && !b.is_fixed() && a.power + b.power > 8) return std::nullopt;
  if (a.floating) return Number::of_real(a.real * b.real, a.power + b.power);
  int64_t product = 0;
  if (__builtin_mul_overflow(a.whole, b.whole, &product)) return std::nullopt;
  return Number::of_whole(product, a.power + b.power);
}

std::optional<Number> divide(const Number& a, const Number& b) {
  if (counts_places(b) && a.power != b.power) return std::nullopt;
  if (a.floating) {
    if (a.power < b.power) return std::nullopt;
    return Number::of_real(a.real / b.real, a.power - b.power);
  }
  if (b.whole == 0 || (b.whole == -1 && a.whole == INT64_MIN)) return std::nullopt;
  if (a.power == b.power && a.power == 0) return Number::of_whole(a.whole / b.whole);
  if (a.power < b.power || a.whole % b.whole != 0) return std::nullopt;
  return Number::of_whole(a.whole / b.whole, a.power - b.power);
}

std::optional<Number> modulo(const Number& a, const Number& b, bool c_sign) {
  if (a.floating) {
    if (a.power != 0 || b.power != 0) return std::nullopt;
    return Number::of_real(std::fmod(a.real, b.real));
  }
  if (b.whole == 0 || b.power != 0) return std::nullopt;
  // The remainder of the smallest integer by -1 traps.
  if (b.whole == -1) return Number::of_whole(0);
  const int64_t rest = a.whole % b.whole;
  if (a.power != 0) return rest == 0 ? std::optional(Number::of_whole(0)) : std::nullopt;
  if (!c_sign && rest != 0 && (rest < 0) != (b.whole < 0)) return Number::of_whole(rest + b.whole);
  return Number::of_whole(rest);
}

std::optional<bool> equal(const Number& a, const Number& b) {
  if (a.power == b.power) return a.floating ? a.real == b.real : a.whole == b.whole;
  // None may be picked, or one; but the number of places is never negative, as -1 for "the rest" is.
  if (counts_places(a) || counts_places(b)) {
    const bool negative = (a.is_fixed() && a.factor() < 0) || (b.is_fixed() && b.factor() < 0);
    return negative ? std::optional(false) : std::nullopt;
  }
  // factor * B^power equals a constant for at most one sample count, so not for every one.
  return false;
}

std::optional<bool> less(const Number& a, const Number& b) {
  if (a.power == b.power) return a.floating ? a.real < b.real : a.whole < b.whole;
  if (counts_places(a) || counts_places(b)) return std::nullopt;
  const auto at = [](const Number& n, double batch) { return n.factor() * std::pow(batch, n.power); };
  // Both are monotone in B; if the answer at 2 is also the answer for huge batches, it holds in between.
  const bool low = at(a, 2) < at(b, 2);
  const bool high = at(a, 1e9) < at(b, 1e9);
  if (low != high) return std::nullopt;
  return low;
}

namespace {

uint16_t bfloat_of_float(double value) {
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  if (std::isnan(value)) return 0x7fc0;
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

}  // namespace

std::optional<Number> stored(DType dtype, Number number) {
  if (dtype == DType::kFloat32) number.real = static_cast<double>(static_cast<float>(number.real));
  if (dtype == DType::kFloat16) number.real = float_of_half(half_of_float(number.real));
  if (dtype == DType::kBFloat16) number.real = float_of_bfloat(bfloat_of_float(number.real));
  if (number.floating || dtype == DType::kInt64 || ir::is_floating(dtype) || dtype == DType::kBool) return number;
  const int bits = static_cast<int>(8 * wire::element_size(dtype));
  const int64_t high = int64_t{1} << (dtype == DType::kUInt8 ? bits : bits - 1),
                low = dtype == DType::kUInt8 ? 0 : -high;
  // A multiple of the batch stays as it is: no batch is that large.
  if (number.power == 0 && (number.whole < low || number.whole >= high)) return std::nullopt;
  return number;
}

Known Known::list(std::vector<Number> numbers) {
  Known known;
  known.shape = {Dim::fixed(static_cast<int64_t>(numbers.size()))};
  known.uniform = numbers.size() == 1;
  known.elements = std::move(numbers);
  return known;
}

std::optional<size_t> known_count(const ir::Shape& shape) {
  const std::optional<Dim> count = ir::element_count(shape);
  if (!count || count->power != 0 || count->factor > kMaxKnownElements || count->factor < 0) return std::nullopt;
  return static_cast<size_t>(count->factor);
}

namespace {

template <typename T>
T load(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

template <typename T>
void store(std::string& out, T value) {
  char raw[sizeof(T)];
  std::memcpy(raw, &value, sizeof(T));
  out.append(raw, sizeof(T));
}

Number load_number(DType dtype, const char* at) {
  switch (dtype) {
    case DType::kFloat32:
      return Number::of_real(static_cast<double>(load<float>(at)));
    case DType::kFloat64:
      return Number::of_real(load<double>(at));
    case DType::kFloat16:
      return Number::of_real(float_of_half(load<uint16_t>(at)));
    case DType::kBFloat16:
      return Number::of_real(float_of_bfloat(load<uint16_t>(at)));
    case DType::kInt64:
      return Number::of_whole(load<int64_t>(at));
    case DType::kInt32:
      return Number::of_whole(load<int32_t>(at));
    case DType::kInt16:
      return Number::of_whole(load<int16_t>(at));
    case DType::kInt8:
      return Number::of_whole(load<int8_t>(at));
    case DType::kUInt8:
      return Number::of_whole(load<uint8_t>(at));
    case DType::kBool:
      return Number::of_whole(load<uint8_t>(at) != 0 ? 1 : 0);
    default:
      GP_CHECK(false);
  }
  return {};
}

void store_number(DType dtype, const Number& number, std::string& out) {
  switch (dtype) {
    case DType::kFloat32:
      return store(out, static_cast<float>(number.real));
    case DType::kFloat64:
      return store(out, number.real);
    case DType::kFloat16:
      return store(out, half_of_float(number.real));
    case DType::kBFloat16:
      return store(out, bfloat_of_float(number.real));
    case DType::kInt64:
      return store(out, number.whole);
    case DType::kInt32:
      return store(out, static_cast<int32_t>(number.whole));
    case DType::kInt16:
      return store(out, static_cast<int16_t>(number.whole));
    case DType::kInt8:
    case DType::kUInt8:
    case DType::kBool:
      return store(out, static_cast<uint8_t>(number.whole));
    default:
      GP_CHECK(false);
  }
}

}  // namespace

std::optional<Known> decode_known(DType dtype, const ir::Shape& shape, const std::string& bytes) {
  const std::optional<size_t> count = known_count(shape);
  const auto width = static_cast<size_t>(ir::bytes_per_element(dtype));
  // Arithmetic wraps around in unsigned types, which Number does not.
  if (!count || !wire::is_computed_in(dtype) || bytes.size() != *count * width) return std::nullopt;
  Known known{.dtype = dtype, .shape = shape, .uniform = false, .elements = {}};
  known.elements.reserve(*count);
  for (size_t i = 0; i < *count; ++i) known.elements.push_back(load_number(dtype, bytes.data() + i * width));
  known.uniform = *count == 1;
  return known;
}

std::string encode_known(const Known& known) {
  const std::optional<size_t> count = known_count(known.shape);
  GP_CHECK(count.has_value());
  std::string bytes;
  for (size_t i = 0; i < *count; ++i) {
    GP_CHECK(known.element(i).is_fixed());
    store_number(known.dtype, known.element(i), bytes);
  }
  return bytes;
}

std::optional<std::vector<int64_t>> whole_numbers(const Known& known) {
  const std::optional<size_t> count = known_count(known.shape);
  if (!count || ir::is_floating(known.dtype)) return std::nullopt;
  std::vector<int64_t> numbers;
  for (size_t i = 0; i < *count; ++i) {
    if (!known.element(i).is_fixed()) return std::nullopt;
    numbers.push_back(known.element(i).whole);
  }
  return numbers;
}

std::optional<ir::Shape> as_dims(const Known& known) {
  const std::optional<size_t> count = known_count(known.shape);
  if (!count || ir::is_floating(known.dtype) || known.shape.size() > 1) return std::nullopt;
  ir::Shape dims;
  for (size_t i = 0; i < *count; ++i) dims.push_back({known.element(i).whole, known.element(i).power});
  return dims;
}

std::optional<ir::Shape> broadcast(const ir::Shape& a, const ir::Shape& b) {
  const ir::Shape& longer = a.size() >= b.size() ? a : b;
  const ir::Shape& shorter = a.size() >= b.size() ? b : a;
  ir::Shape result = longer;
  const size_t lead = longer.size() - shorter.size();
  for (size_t i = 0; i < shorter.size(); ++i) {
    Dim& dim = result[lead + i];
    if (dim == Dim::fixed(1)) dim = shorter[i];
    else if (shorter[i] != dim && shorter[i] != Dim::fixed(1)) return std::nullopt;
  }
  return result;
}

}  // namespace graphpipe::frontend
