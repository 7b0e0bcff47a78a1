#include "driver/report/compare_tensors.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "support/half_float.h"
#include "support/text.h"

using namespace graphpipe;

namespace {

// A safetensors file with one tensor of these bits.
std::string file_of(const std::string& name, const std::string& dtype, const std::vector<uint16_t>& bits) {
  const std::string path = text(std::filesystem::temp_directory_path().string(), "/graphpipe-compare-", name);
  const size_t bytes = bits.size() * sizeof(uint16_t);
  const std::string header =
      text(R"({"w":{"dtype":")", dtype, R"(","shape":[)", bits.size(), R"(],"data_offsets":[0,)", bytes, "]}}");
  const auto length = static_cast<uint64_t>(header.size());
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&length), sizeof length);
  out << header;
  out.write(reinterpret_cast<const char*>(bits.data()), static_cast<std::streamsize>(bytes));
  return path;
}

double difference(const std::string& dtype, const std::vector<uint16_t>& a, const std::vector<uint16_t>& b) {
  const std::string first = file_of("a", dtype, a), second = file_of("b", dtype, b);
  const auto found = driver::largest_difference(first, second);
  std::filesystem::remove(first);
  std::filesystem::remove(second);
  REQUIRE(found.ok());
  return *found;
}

}  // namespace

TEST_CASE("16-bit numbers are read as what they are") {
  CHECK(float_of_bfloat(0x3f80) == 1);
  CHECK(float_of_bfloat(0xc040) == -3);
  CHECK(float_of_half(0x3c00) == 1);
  CHECK(float_of_half(0xc200) == -3);
  CHECK(float_of_half(0x0001) == doctest::Approx(5.9604644775390625e-8).epsilon(1e-15));
}

TEST_CASE("tensors of 16-bit numbers differ by their numbers, not by their bytes") {
  // 1 and 1 + 2^-7: one unit in the last place, which in bytes is 0x80 against 0x81.
  CHECK(difference("BF16", {0x3f80}, {0x3f80}) == 0);
  CHECK(difference("BF16", {0x3f81}, {0x3f80}) == doctest::Approx(1.0 / 128));
  CHECK(difference("F16", {0x3c01}, {0x3c00}) == doctest::Approx(1.0 / 1024));
  // 0.99609375 and 1 are neighbours although no byte of them agrees.
  CHECK(difference("BF16", {0x3f7f}, {0x3f80}) == doctest::Approx(1.0 / 256));
  CHECK(difference("F16", {0x3c00}, {0x4000}) == doctest::Approx(0.5));
}
