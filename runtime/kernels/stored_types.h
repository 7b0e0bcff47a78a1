#pragma once
// Casts to types that are only stored and never computed with: small floats and integers of less than a byte, by the
// rules of ONNX's operator Cast (https://onnx.ai/onnx/operators/onnx__Cast.html,
// https://onnx.ai/onnx/technical/float8.html).

#include <cstdint>

#include "wire/element_type.h"

namespace at {
class Tensor;
}

namespace graphpipe::runtime {

/// How a number between two powers of two is rounded to one of them, in float8_e8m0fnu.
enum class PowerRounding : uint8_t { kUp, kDown, kNearest };

/// Casts from float4_e2m1fn, or to a stored type. Floats are rounded to nearest, ties to even; numbers beyond the
/// largest one become the largest if `saturate`, otherwise infinite if the type has infinities, otherwise NaN
/// (float4_e2m1fn always saturates). Integers of less than a byte keep the lowest bits of the number truncated toward
/// zero.
at::Tensor cast_stored(const at::Tensor& x, wire::ElementType from, wire::ElementType to, bool saturate,
                       PowerRounding rounding);

}  // namespace graphpipe::runtime
