#include "support/half_float.h"

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

double float_of_bfloat(uint16_t bits) { return static_cast<double>(std::bit_cast<float>(uint32_t{bits} << 16)); }

}  // namespace graphpipe
