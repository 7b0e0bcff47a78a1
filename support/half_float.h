#pragma once
// Numbers of the two 16-bit floating types, and their bits.

#include <cstdint>

namespace graphpipe {

/// IEEE binary16: 5 bits of exponent, 10 of fraction. Exact.
double float_of_half(uint16_t bits);
/// The nearest one, the even one of two; beyond the largest, infinity. Not every compiler has the type.
uint16_t half_of_float(double number);
/// bfloat16: the upper half of a float. Exact.
double float_of_bfloat(uint16_t bits);

/// Whether the type represents the number exactly, as it does infinities.
bool is_half(double number);
bool is_bfloat(double number);

}  // namespace graphpipe
