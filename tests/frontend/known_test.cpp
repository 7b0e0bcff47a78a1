// Arithmetic on numbers of the form factor * B^power: it must agree with plain arithmetic at every sample count.

#include "frontend/known.h"

#include <doctest/doctest.h>

#include <cmath>
#include <random>

#include "frontend/evaluate.h"

using namespace graphpipe;
using namespace graphpipe::frontend;

namespace {

int64_t at(const Number& number, int64_t batch) {
  int64_t value = number.whole;
  for (int i = 0; i < number.power; ++i) value *= batch;
  return value;
}

}  // namespace

TEST_CASE("a result, where there is one, is right for every batch") {
  std::mt19937_64 random(1);
  const auto number = [&] {
    return Number::of_whole(static_cast<int64_t>(random() % 25) - 12, static_cast<int>(random() % 3));
  };
  size_t results = 0;
  for (int trial = 0; trial < 5000; ++trial) {
    const Number a = number(), b = number();
    for (int64_t batch : {2, 3, 8, 1000}) {
      CAPTURE(a.whole);
      CAPTURE(a.power);
      CAPTURE(b.whole);
      CAPTURE(b.power);
      CAPTURE(batch);
      if (const auto sum = add(a, b)) CHECK(at(*sum, batch) == at(a, batch) + at(b, batch));
      results += add(a, b).has_value();
      if (const auto rest = subtract(a, b)) CHECK(at(*rest, batch) == at(a, batch) - at(b, batch));
      if (const auto product = multiply(a, b)) CHECK(at(*product, batch) == at(a, batch) * at(b, batch));
      if (const auto part = divide(a, b)) CHECK(at(*part, batch) == at(a, batch) / at(b, batch));
      if (const auto rest = modulo(a, b, true)) CHECK(at(*rest, batch) == at(a, batch) % at(b, batch));
      if (const auto below = less(a, b)) CHECK(*below == (at(a, batch) < at(b, batch)));
    }
  }
  CHECK(results > 1000);
}

TEST_CASE("overflow has no result") {
  const Number big = Number::of_whole(INT64_MAX), low = Number::of_whole(INT64_MIN);
  CHECK_FALSE(add(big, Number::of_whole(1)).has_value());
  CHECK_FALSE(multiply(big, Number::of_whole(2)).has_value());
  CHECK_FALSE(subtract(Number::of_whole(0), low).has_value());
  CHECK_FALSE(divide(low, Number::of_whole(-1)).has_value());
  CHECK_FALSE(divide(big, Number::of_whole(0)).has_value());
}

TEST_CASE("bytes survive decoding and encoding in every type") {
  std::mt19937_64 random(2);
  for (ir::DType dtype :
       {ir::DType::kFloat32, ir::DType::kFloat64, ir::DType::kFloat16, ir::DType::kBFloat16, ir::DType::kInt64,
        ir::DType::kInt32, ir::DType::kInt16, ir::DType::kInt8, ir::DType::kUInt8}) {
    CAPTURE(ir::dtype_name(dtype));
    for (int trial = 0; trial < 200; ++trial) {
      std::string bytes(static_cast<size_t>(4 * ir::bytes_per_element(dtype)), '\0');
      // Small exponents in every float format: no NaN, whose bits need not survive.
      for (char& byte : bytes) byte = static_cast<char>(random() % 0x3f);
      const auto known = decode_known(dtype, {ir::Dim::fixed(4)}, bytes);
      REQUIRE(known.has_value());
      CHECK(encode_known(*known) == bytes);
    }
  }
}

TEST_CASE("half precision rounds to nearest even and keeps subnormals") {
  const auto bits = [](double value) {
    const std::string bytes = encode_known(Known::scalar(ir::DType::kFloat16, Number::of_real(value)));
    return static_cast<unsigned char>(bytes[0]) | static_cast<unsigned char>(bytes[1]) << 8;
  };
  CHECK(bits(1.0) == 0x3c00);
  CHECK(bits(-2.0) == 0xc000);
  CHECK(bits(65504.0) == 0x7bff);
  CHECK(bits(65520.0) == 0x7c00);
  CHECK(bits(1.0 + 1.0 / 2048) == 0x3c00);
  CHECK(bits(1.0 + 3.0 / 2048) == 0x3c02);
  CHECK(bits(std::ldexp(1.0, -24)) == 0x0001);
  CHECK(bits(std::ldexp(1.0, -14)) == 0x0400);
}

TEST_CASE("a filled tensor of any size is one element") {
  const OnnxNode expand{.op = "Expand", .inputs = {"a", "b"}, .outputs = {"c"}};
  const Known zero = Known::scalar(ir::DType::kFloat32, Number::of_real(0));
  const Known target = Known::list({Number::of_whole(1, 1), Number::of_whole(1 << 20), Number::of_whole(1 << 20)});
  const Known* inputs[] = {&zero, &target};
  const auto filled = evaluate(expand, inputs);
  REQUIRE(filled.has_value());
  CHECK(filled->elements.size() == 1);
  CHECK(filled->shape == ir::Shape{ir::Dim::batch(), ir::Dim::fixed(1 << 20), ir::Dim::fixed(1 << 20)});
}
