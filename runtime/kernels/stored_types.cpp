#include "runtime/kernels/stored_types.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/tensors.h"
#include "support/check.h"

namespace graphpipe::runtime {
namespace {

using wire::ElementType;

// A float made of a sign bit, exponent bits and fraction bits, in one byte or less.
struct SmallFormat {
  int fraction_bits;
  int bias;
  double largest;
  // The code of NaN without its sign; negative if there is none.
  int nan;
  // The code of infinity; negative if there is none.
  int infinity;
  // Zero is unsigned: NaN has the code of negative zero.
  bool unsigned_zero;
  uint8_t sign;
};

SmallFormat format_of(ElementType type) {
  switch (type) {
    case ElementType::kFloat8E4M3FN:
      return {3, 7, 448, 0x7f, -1, false, 0x80};
    case ElementType::kFloat8E4M3FNUZ:
      return {3, 8, 240, 0x80, -1, true, 0x80};
    case ElementType::kFloat8E5M2:
      return {2, 15, 57344, 0x7e, 0x7c, false, 0x80};
    case ElementType::kFloat8E5M2FNUZ:
      return {2, 16, 57344, 0x80, -1, true, 0x80};
    case ElementType::kFloat4E2M1:
      return {1, 1, 6, -1, -1, false, 0x08};
    default:
      GP_CHECK(false);
  }
}

// For a number >= 0, rounded to nearest with ties to even; the code is the number's rank among the format's numbers.
int magnitude_code(double size, const SmallFormat& format) {
  if (size == 0) return 0;
  int exponent = 0;
  std::frexp(size, &exponent);  // size in [2^(exponent-1), 2^exponent)
  exponent = std::max(exponent - 1, 1 - format.bias);
  const auto steps = static_cast<int>(std::nearbyint(std::ldexp(size, format.fraction_bits - exponent)));
  // A carry out of the fraction moves into the exponent by itself, and subnormal numbers have exponent 0.
  return ((exponent + format.bias - 1) << format.fraction_bits) + steps;
}

uint8_t code_of(double value, const SmallFormat& format, bool saturate) {
  const bool negative = std::signbit(value);
  const auto with_sign = [&](int code) {
    if (code == 0 && format.unsigned_zero) return uint8_t{0};
    return static_cast<uint8_t>(code | (negative ? format.sign : 0));
  };
  if (std::isnan(value)) return format.nan < 0 ? format.sign : with_sign(format.nan);
  const int largest = magnitude_code(format.largest, format);
  const double size = std::fabs(value);
  const int code = size > 2 * format.largest ? largest + 1 : magnitude_code(size, format);
  if (code <= largest) return with_sign(code);
  if (saturate || format.nan < 0) return with_sign(largest);
  return with_sign(format.infinity >= 0 ? format.infinity : format.nan);
}

// Powers of two from 2^-127 to 2^127 without a sign; 255 is NaN.
uint8_t power_code(double value, bool saturate, PowerRounding rounding) {
  if (std::isnan(value)) return 255;
  const double size = std::fabs(value);
  if (std::isinf(size)) return saturate ? 254 : 255;
  if (size <= 0x1p-127) return 0;
  int exponent = 0;
  const double fraction = std::frexp(size, &exponent);  // in [0.5, 1)
  const bool up =
      rounding == PowerRounding::kUp ? fraction > 0.5 : rounding == PowerRounding::kNearest && fraction >= 0.75;
  const int code = exponent - 1 + 127 + (up ? 1 : 0);
  return static_cast<uint8_t>(code > 254 ? (saturate ? 254 : 255) : std::max(code, 0));
}

template <typename Code>
at::Tensor mapped(const at::Tensor& numbers, Code code) {
  const at::Tensor from = numbers.to(at::kDouble).contiguous();
  at::Tensor codes = at::empty(from.sizes(), at::TensorOptions(at::kByte));
  const double* in = from.const_data_ptr<double>();
  uint8_t* out = codes.mutable_data_ptr<uint8_t>();
  for (int64_t i = 0; i < from.numel(); ++i) out[i] = code(in[i]);
  return codes;
}

// Their values as float32.
at::Tensor float4_values(const at::Tensor& codes) {
  static constexpr float kSizes[] = {0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};
  const at::Tensor from = codes.contiguous();
  at::Tensor values = at::empty(from.sizes(), at::TensorOptions(at::kFloat));
  const uint8_t* in = from.const_data_ptr<uint8_t>();
  float* out = values.mutable_data_ptr<float>();
  for (int64_t i = 0; i < from.numel(); ++i) out[i] = (in[i] & 8U) != 0 ? -kSizes[in[i] & 7U] : kSizes[in[i] & 7U];
  return values;
}

// The lowest `bits` bits, as the value of an integer of that width.
at::Tensor low_bits(const at::Tensor& x, ElementType to) {
  const int bits = to == ElementType::kInt4 || to == ElementType::kUInt4 ? 4 : 2;
  const bool is_signed = to == ElementType::kInt4 || to == ElementType::kInt2;
  const at::Tensor from = x.to(at::kLong).contiguous();
  at::Tensor small = at::empty(from.sizes(), at::TensorOptions(scalar_type(to)));
  const int64_t* in = from.const_data_ptr<int64_t>();
  auto* out = static_cast<uint8_t*>(small.mutable_data_ptr());
  for (int64_t i = 0; i < from.numel(); ++i) {
    auto low = static_cast<unsigned>(static_cast<uint64_t>(in[i]) & ((1U << bits) - 1));
    if (is_signed && (low >> (bits - 1)) != 0) low |= 0xffU << bits;
    out[i] = static_cast<uint8_t>(low & 0xffU);
  }
  return small;
}

}  // namespace

at::Tensor cast_stored(const at::Tensor& x, ElementType from, ElementType to, bool saturate, PowerRounding rounding) {
  // The loops read host memory. Such casts are at the edges of a model, where weights and results are small.
  if (!x.is_cpu()) return cast_stored(x.cpu(), from, to, saturate, rounding).to(x.device());
  const at::Tensor numbers = from == ElementType::kFloat4E2M1 ? float4_values(x) : x;
  if (!wire::is_stored_only(to)) return numbers.to(scalar_type(to));
  if (wire::find_element_type(to)->packed > 1 && to != ElementType::kFloat4E2M1) return low_bits(numbers, to);
  if (to == ElementType::kFloat8E8M0)
    return mapped(numbers, [&](double value) { return power_code(value, saturate, rounding); }).view(scalar_type(to));
  const SmallFormat format = format_of(to);
  const at::Tensor codes = mapped(numbers, [&](double value) { return code_of(value, format, saturate); });
  return to == ElementType::kFloat4E2M1 ? codes : codes.view(scalar_type(to));
}

}  // namespace graphpipe::runtime
