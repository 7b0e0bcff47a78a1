#include "wire/element_type.h"

#include <doctest/doctest.h>

#include "wire/npy_header.h"
#include "wire/packed_elements.h"

using namespace graphpipe::wire;

namespace {

std::vector<int> unpacked(ElementType type, std::vector<uint8_t> packed, int64_t count) {
  const auto bytes = unpack_elements(type, std::as_bytes(std::span(packed)), count);
  std::vector<int> values;
  for (const std::byte byte : bytes.value_or(std::vector<std::byte>())) values.push_back(static_cast<int8_t>(byte));
  return values;
}

}  // namespace

TEST_CASE("an element type is found by its number and by each of its names") {
  for (const ElementTypeInfo& info : kElementTypes) {
    CAPTURE(info.long_name);
    CHECK(find_element_type(info.type) == &info);
    CHECK(find_element_type(&ElementTypeInfo::short_name, info.short_name) == &info);
    CHECK(find_element_type(&ElementTypeInfo::long_name, info.long_name) == &info);
    CHECK(find_element_type(&ElementTypeInfo::safetensors_name, info.safetensors_name) == &info);
    CHECK(find_element_type_of_onnx(info.onnx_type) == &info);
  }
  for (const int strings_or_complex : {0, 8, 14, 15, -1, 1000})
    CHECK(find_element_type_of_onnx(strings_or_complex) == nullptr);
}

TEST_CASE("packed elements: the first in the lowest bits, signed ones by their value") {
  CHECK(unpacked(ElementType::kUInt4, {0x21, 0x0f}, 3) == std::vector<int>{1, 2, 15});
  CHECK(unpacked(ElementType::kInt4, {0x87, 0x0f}, 3) == std::vector<int>{7, -8, -1});
  CHECK(unpacked(ElementType::kUInt2, {0xe4, 0x02}, 5) == std::vector<int>{0, 1, 2, 3, 2});
  CHECK(unpacked(ElementType::kInt2, {0xe4}, 4) == std::vector<int>{0, 1, -2, -1});
  CHECK(unpacked(ElementType::kFloat4E2M1, {0xf0}, 2) == std::vector<int>{0, 15});
  for (const int64_t wrong : {int64_t{-1}, int64_t{2}, int64_t{5}, int64_t{1} << 62})
    CHECK_FALSE(unpack_elements(ElementType::kInt4, std::vector<std::byte>(2), wrong).has_value());
}

TEST_CASE("elements of less than a byte share one where they are stored, and the last one may be half empty") {
  for (const auto& [count, bytes] : {std::pair(0, 0), {1, 1}, {2, 1}, {3, 2}, {512, 256}})
    CHECK(stored_bytes(ElementType::kInt4, count) == bytes);
  CHECK(stored_bytes(ElementType::kUInt2, 5) == 2);
  CHECK(stored_bytes(ElementType::kFloat32, 5) == 20);
}

TEST_CASE("a .npy file may hold unsigned integers of 2, 4 and 8 bytes") {
  const std::pair<const char*, ElementType> types[] = {
      {"<u2", ElementType::kUInt16}, {"<u4", ElementType::kUInt32}, {"<u8", ElementType::kUInt64}};
  for (const auto& [descr, type] : types) {
    std::string header = std::string("{'descr': '") + descr + "', 'fortran_order': False, 'shape': (3,), }";
    header.resize(117, ' ');
    std::string file = std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(118) + '\0' + header + "\n";
    file.resize(file.size() + static_cast<size_t>(3 * element_size(type)));
    const auto read = read_npy_header(std::as_bytes(std::span(file)), "ids.npy");
    REQUIRE(read.ok());
    CHECK(read->type == type);
  }
}
