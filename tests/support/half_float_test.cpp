#include "support/half_float.h"

#include <doctest/doctest.h>

#include <cmath>

using namespace graphpipe;

TEST_CASE("every half comes back from its number") {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const double number = float_of_half(half);
    if (std::isnan(number)) CHECK(std::isnan(float_of_half(half_of_float(number))));
    else CHECK(half_of_float(number) == half);
  }
}

TEST_CASE("a number becomes the nearest half, the even one of two") {
  for (uint16_t half = 0; half + 1 < 0x7c00; ++half) {
    const double low = float_of_half(half), high = float_of_half(static_cast<uint16_t>(half + 1)),
                 middle = (low + high) / 2;
    const auto upper = static_cast<uint16_t>(half + 1);
    CHECK(half_of_float(std::nextafter(middle, 0.0)) == half);
    CHECK(half_of_float(std::nextafter(middle, 1e9)) == upper);
    CHECK(half_of_float(middle) == (half % 2 == 0 ? half : upper));
    CHECK(half_of_float(-middle) == (0x8000 | (half % 2 == 0 ? half : upper)));
  }
  CHECK(half_of_float(65519.99) == 0x7bff);
  CHECK(half_of_float(65520) == 0x7c00);
  CHECK(half_of_float(-1e300) == 0xfc00);
  CHECK(half_of_float(1e-300) == 0);
}

TEST_CASE("a 16-bit type has a number exactly, or rounds it") {
  for (const double both : {0.0, -1.0, 0.5, 6.0, double{INFINITY}, -double{INFINITY}}) {
    CHECK(is_half(both));
    CHECK(is_bfloat(both));
  }
  for (const double neither : {0.7, -1.1, 1e300, double{NAN}}) {
    CHECK_FALSE(is_half(neither));
    CHECK_FALSE(is_bfloat(neither));
  }
  CHECK(is_half(1 + 0x1p-10));
  CHECK_FALSE(is_bfloat(1 + 0x1p-10));
  CHECK(is_bfloat(0x1p100));
  CHECK_FALSE(is_half(0x1p100));
}
