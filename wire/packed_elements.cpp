#include "wire/packed_elements.h"

namespace graphpipe::wire {

int64_t stored_bytes(ElementType type, int64_t count) {
  const ElementTypeInfo& info = kElementTypes[static_cast<size_t>(type)];
  return count / info.packed * info.bytes + (count % info.packed != 0 ? 1 : 0);
}

std::optional<std::vector<std::byte>> unpack_elements(ElementType type, std::span<const std::byte> packed,
                                                      int64_t count) {
  const auto per_byte = static_cast<size_t>(kElementTypes[static_cast<size_t>(type)].packed);
  const auto elements = static_cast<size_t>(count);
  if (count < 0 || packed.size() != static_cast<size_t>(stored_bytes(type, count))) return std::nullopt;
  const size_t bits = 8 / per_byte;
  const bool is_signed = type == ElementType::kInt4 || type == ElementType::kInt2;
  std::vector<std::byte> unpacked(elements);
  for (size_t i = 0; i < elements; ++i) {
    const unsigned shift = static_cast<unsigned>(i % per_byte * bits);
    unsigned value = (static_cast<unsigned>(packed[i / per_byte]) >> shift) & ((1U << bits) - 1);
    if (is_signed && (value >> (bits - 1)) != 0) value |= 0xffU << bits;
    unpacked[i] = static_cast<std::byte>(value & 0xffU);
  }
  return unpacked;
}

}  // namespace graphpipe::wire
