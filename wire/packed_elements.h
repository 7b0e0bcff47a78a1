#pragma once
// Elements of less than a byte, which ONNX packs two or four in one, the first in the lowest bits
// (https://onnx.ai/onnx/technical/int4.html).

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "wire/element_type.h"

namespace graphpipe::wire {

/// The bytes that so many elements of a type take in a file. Needs: count >= 0, and a product below 2^63.
int64_t stored_bytes(ElementType type, int64_t count);
/// One byte for each of `count` elements: the value of a signed integer, else the element's bits. Nothing where the
/// bytes are not those of so many elements. Needs: a type with packed > 1.
std::optional<std::vector<std::byte>> unpack_elements(ElementType type, std::span<const std::byte> packed,
                                                      int64_t count);

}  // namespace graphpipe::wire
