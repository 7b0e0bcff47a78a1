#include "wire/scan_numbers.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "wire/data_table.h"

namespace graphpipe::wire {
namespace {

/// Elements that are looked at together: the common answer, "none", then needs no branch per element.
constexpr size_t kBlock = 1024;

template <typename T>
T load(std::span<const std::byte> elements, size_t index) {
  T element;
  std::memcpy(&element, elements.data() + index * sizeof(T), sizeof(T));
  return element;
}

template <typename T, typename IsBad>
std::optional<size_t> first_bad(std::span<const std::byte> elements, const IsBad& is_bad) {
  const size_t count = elements.size() / sizeof(T);
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t end = std::min(count, begin + kBlock);
    unsigned bad = 0;
    for (size_t i = begin; i < end; ++i) bad |= static_cast<unsigned>(is_bad(load<T>(elements, i)));
    if (bad == 0) continue;
    for (size_t i = begin; i < end; ++i)
      if (is_bad(load<T>(elements, i))) return i;
  }
  return std::nullopt;
}

// An exponent of ones: infinities and NaN, in every binary format of IEEE 754.
template <typename Bits>
std::optional<size_t> first_with_exponent(std::span<const std::byte> elements, Bits exponent) {
  return first_bad<Bits>(elements, [exponent](Bits bits) { return (bits & exponent) == exponent; });
}

template <typename T>
std::optional<size_t> first_outside(std::span<const std::byte> elements, const IdBounds& bounds) {
  return first_bad<T>(elements, [bounds](T element) { return !bounds.hold(static_cast<int64_t>(element)); });
}

}  // namespace

std::optional<size_t> first_not_finite(ElementType type, std::span<const std::byte> elements) {
  switch (type) {
    case ElementType::kFloat32:
      return first_with_exponent<uint32_t>(elements, 0x7f800000);
    case ElementType::kFloat64:
      return first_with_exponent<uint64_t>(elements, 0x7ff0000000000000);
    case ElementType::kFloat16:
      return first_with_exponent<uint16_t>(elements, 0x7c00);
    case ElementType::kBFloat16:
      return first_with_exponent<uint16_t>(elements, 0x7f80);
    default:
      return std::nullopt;
  }
}

std::optional<size_t> first_out_of_bounds(ElementType type, std::span<const std::byte> elements,
                                          const IdBounds& bounds) {
  switch (type) {
    case ElementType::kInt64:
      return first_outside<int64_t>(elements, bounds);
    case ElementType::kInt32:
      return first_outside<int32_t>(elements, bounds);
    case ElementType::kInt16:
      return first_outside<int16_t>(elements, bounds);
    case ElementType::kInt8:
      return first_outside<int8_t>(elements, bounds);
    case ElementType::kUInt16:
      return first_outside<uint16_t>(elements, bounds);
    case ElementType::kUInt32:
      return first_outside<uint32_t>(elements, bounds);
    case ElementType::kUInt64:
      return first_outside<uint64_t>(elements, bounds);
    default:
      return first_outside<uint8_t>(elements, bounds);
  }
}

int64_t integer_at(ElementType type, std::span<const std::byte> elements, size_t index) {
  switch (type) {
    case ElementType::kInt64:
      return load<int64_t>(elements, index);
    case ElementType::kInt32:
      return load<int32_t>(elements, index);
    case ElementType::kInt16:
      return load<int16_t>(elements, index);
    case ElementType::kInt8:
      return load<int8_t>(elements, index);
    case ElementType::kUInt16:
      return load<uint16_t>(elements, index);
    case ElementType::kUInt32:
      return load<uint32_t>(elements, index);
    case ElementType::kUInt64:
      return static_cast<int64_t>(load<uint64_t>(elements, index));
    default:
      return load<uint8_t>(elements, index);
  }
}

const char* not_finite_name(ElementType type, std::span<const std::byte> elements, size_t index) {
  // An infinity has no fraction beside its exponent of ones.
  uint64_t fraction = 0;
  switch (type) {
    case ElementType::kFloat64:
      fraction = load<uint64_t>(elements, index) & 0xfffffffffffff;
      break;
    case ElementType::kFloat16:
      fraction = load<uint16_t>(elements, index) & 0x3ff;
      break;
    case ElementType::kBFloat16:
      fraction = load<uint16_t>(elements, index) & 0x7f;
      break;
    default:
      fraction = load<uint32_t>(elements, index) & 0x7fffff;
  }
  return fraction == 0 ? "infinite" : "not a number (NaN)";
}

std::string index_text(std::span<const int64_t> dims, size_t element) {
  std::vector<int64_t> index(dims.size());
  for (size_t axis = dims.size(); axis-- > 0;) {
    const auto size = static_cast<size_t>(std::max<int64_t>(1, dims[axis]));
    index[axis] = static_cast<int64_t>(element % size);
    element /= size;
  }
  return shape_text(index);
}

std::optional<std::string> find_not_finite(ElementType type, std::span<const int64_t> dims,
                                           std::span<const std::byte> elements) {
  const std::optional<size_t> found = first_not_finite(type, elements);
  if (!found) return std::nullopt;
  return "element " + index_text(dims, *found) + " is " + not_finite_name(type, elements, *found);
}

}  // namespace graphpipe::wire
