#include "ir/types.h"

#include <doctest/doctest.h>

namespace graphpipe::ir {
namespace {

TEST_CASE("every element type's name leads back to it") {
  for (const wire::ElementTypeInfo& info : wire::kElementTypes) {
    const DType dtype = info.type;
    CAPTURE(dtype_name(dtype));
    CHECK(dtype_of_name(dtype_name(dtype)) == dtype);
    CHECK(bytes_per_element(dtype) > 0);
  }
  CHECK_FALSE(dtype_of_name("float").has_value());
}

TEST_CASE("a dimension grows with the power of the batch") {
  CHECK(Dim::fixed(7).at(Samples(100)) == 7);
  CHECK(Dim::batch(4).at(Samples(3)) == 12);
  CHECK(Dim{1, 2}.at(Samples(5)) == 25);
  CHECK(Dim{3, 2}.at(Samples(0)) == 0);
}

TEST_CASE("the element count multiplies factors and adds powers") {
  CHECK(element_count({Dim::batch(2), Dim::fixed(3), Dim::batch()}) == Dim{6, 2});
  CHECK(element_count({}) == Dim::fixed(1));
  CHECK(element_count({Dim::fixed(int64_t{1} << 47), Dim::fixed(4)}) == std::nullopt);
  CHECK(element_count({Dim::fixed(int64_t{1} << 62), Dim::fixed(int64_t{1} << 62)}) == std::nullopt);
  CHECK(element_count({Dim::fixed(int64_t{1} << 62), Dim::fixed(0)}) == Dim::fixed(0));
}

TEST_CASE("byte sizes are exact, and absurd ones stop at a bound instead of overflowing") {
  CHECK(byte_size({DType::kFloat32, {Dim::batch(), Dim::fixed(10)}}, Samples(8)) == Bytes(320));
  CHECK(byte_size({DType::kBool, {}}, Samples(8)) == Bytes(1));
  const TensorType square{DType::kFloat64, {Dim{int64_t{1} << 40, 2}}};
  CHECK(byte_size(square, Samples(int64_t{1} << 30)) == Bytes(int64_t{1} << 56));
}

}  // namespace
}  // namespace graphpipe::ir
