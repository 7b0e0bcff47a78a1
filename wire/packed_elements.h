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

/// One byte for each of `count` elements: the value of a signed integer, else the element's bits. Nothing where the
/// bytes are not those of so many elements. Needs: a type with packed > 1.
std::optional<std::vector<std::byte>> unpack_elements(ElementType type, std::span<const std::byte> packed,
                                                      int64_t count);

}  // namespace graphpipe::wire
