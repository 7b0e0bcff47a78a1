#include "wire/element_bytes.h"

#include <cstring>

#include "support/check.h"
#include "support/half_float.h"

namespace graphpipe::wire {
namespace {

template <typename T>
std::string element_of(T element) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &element, sizeof(T));
  return bytes;
}

}  // namespace

std::string element_bytes(ElementType type, double value) {
  switch (type) {
    case ElementType::kFloat64:
      return element_of<double>(value);
    case ElementType::kInt64:
      return element_of<int64_t>(value);
    case ElementType::kInt32:
      return element_of<int32_t>(value);
    case ElementType::kInt16:
      return element_of<int16_t>(value);
    case ElementType::kInt8:
      return element_of<int8_t>(value);
    case ElementType::kUInt8:
      return element_of<uint8_t>(value);
    case ElementType::kBool:
      return element_of<uint8_t>(value != 0);
    case ElementType::kFloat16:
      return element_of<uint16_t>(half_of_float(value));
    case ElementType::kBFloat16:
      return element_of<float>(value).substr(2);
    case ElementType::kFloat32:
      break;
    default:
      GP_CHECK(false);
  }
  return element_of<float>(value);
}

std::string transposed_elements(std::string_view matrix, size_t rows, size_t element_size) {
  const size_t columns = rows == 0 ? 0 : matrix.size() / rows / element_size;
  std::string transposed(matrix.size(), '\0');
  for (size_t row = 0; row < rows; ++row)
    for (size_t column = 0; column < columns; ++column)
      std::memcpy(&transposed[(column * rows + row) * element_size], &matrix[(row * columns + column) * element_size],
                  element_size);
  return transposed;
}

}  // namespace graphpipe::wire
