#pragma once
// Elements as files and memory have them.

#include <string>
#include <string_view>

#include "wire/element_type.h"

namespace graphpipe::wire {

/// The nearest value of the type, little-endian; bfloat16 cuts off what it cannot hold. Needs: a type that is computed
/// in, and of integers a number that they hold.
std::string element_bytes(ElementType type, double value);

/// The transpose of a matrix of `rows` rows, both row by row. Needs: as many bytes as rows * columns elements have.
std::string transposed_elements(std::string_view matrix, size_t rows, size_t element_size);

}  // namespace graphpipe::wire
