#include "support/half_float.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace graphpipe {

double float_of_half(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const double fraction = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  if (exponent == 31) return fraction == 0 ? sign * INFINITY : NAN;
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

uint16_t half_of_float(double number) {
  const auto sign = static_cast<uint16_t>(std::signbit(number) ? 0x8000 : 0);
  const double size = std::abs(number);
  if (std::isnan(number)) return sign | 0x7e00;
  if (size >= 65520) return sign | 0x7c00;
  if (size == 0) return sign;
  const int exponent = std::max(std::ilogb(size), -14);
  // The leading bit of the fraction, which is not stored, adds one to the exponent's field; below 2^-14 there is none.
  const double fraction = std::nearbyint(std::ldexp(size, 10 - exponent));
  return sign | static_cast<uint16_t>((exponent + 14) * 1024 + static_cast<int>(fraction));
}

double float_of_bfloat(uint16_t bits) { return static_cast<double>(std::bit_cast<float>(uint32_t{bits} << 16)); }

bool is_half(double number) { return float_of_half(half_of_float(number)) == number; }

bool is_bfloat(double number) {
  const auto narrow = static_cast<float>(number);
  return static_cast<double>(narrow) == number && (std::bit_cast<uint32_t>(narrow) & 0xffffu) == 0;
}

}  // namespace graphpipe
