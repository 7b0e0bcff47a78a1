#include "files/safetensors.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <random>

#include "files/text_file.h"

namespace graphpipe::files {
namespace {

namespace fs = std::filesystem;

// A file with this header and `data` bytes behind it.
std::string file_of(const std::string& header, size_t data) {
  std::string size;
  for (size_t i = 0; i < 8; ++i) size += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return size + header + std::string(data, 'x');
}

Result<SafetensorsIndex> parsed(const std::string& header, size_t data) {
  const std::string file = file_of(header, data);
  return wire::parse_safetensors(file, static_cast<int64_t>(file.size()));
}

std::string refusal(const std::string& header, size_t data) {
  const Result<SafetensorsIndex> index = parsed(header, data);
  return index.ok() ? std::string("fine") : to_line(index.problems()[0]);
}

bool refuses(const std::string& header, size_t data, std::string_view why) {
  const std::string line = refusal(header, data);
  CAPTURE(line);
  return line.find(why) != std::string::npos;
}

constexpr const char* kA = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";

TEST_CASE("a header says where the tensors lie") {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"I64","shape":[],"data_offsets":[8,16]},)" + std::string(kA) +
      "}  ";
  const Result<SafetensorsIndex> index = parsed(header, 16);
  REQUIRE(index.ok());
  REQUIRE(index->tensors.size() == 2);
  CHECK(index->tensors[0].name.raw() == "a");
  CHECK(index->tensors[0].shape == std::vector<int64_t>{2});
  CHECK(index->tensors[0].offset == static_cast<int64_t>(8 + header.size()));
  CHECK(index->tensors[1].dtype == ir::DType::kInt64);
  CHECK(index->metadata[0].first.raw() == "format");
  CHECK(refusal("{}", 0) == "fine");
}

TEST_CASE("every lie about sizes, places and types is refused") {
  const auto one = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"a":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  CHECK(refusal(one("F32", "[2]", "[0,8]"), 8) == "fine");
  CHECK(refusal(one("F32", "[0]", "[0,0]"), 0) == "fine");
  CHECK(refuses(one("F32", "[2]", "[0,8]"), 9, "the tensors end at byte"));
  CHECK(refuses(one("F32", "[2]", "[0,8]"), 7, "'a': lies at [0, 8) of 7"));
  CHECK(refuses(one("F32", "[2]", "[1,9]"), 9, "hole before"));
  CHECK(refuses(one("F32", "[3]", "[0,8]"), 8, "does not fit its 8 bytes"));
  CHECK(refuses(one("F32", "[4294967296,4294967296]", "[0,0]"), 0, "does not fit"));
  CHECK(refuses(one("F32", "[2]", "[8,0]"), 8, "lies at [8, 0)"));
  CHECK(refuses(one("F32", "[2]", "[0,9223372036854775807]"), 8, "lies at [0, 9223372036854775807) of 8"));
  CHECK(refuses(one("F32", "[2]", "[0,18446744073709551615]"), 8, "must be an integer from 0 to 2^63 - 1"));
  CHECK(refuses(one("F32", "[-2]", "[0,8]"), 8, "must be an integer"));
  CHECK(refuses(one("F32", "[2.0]", "[0,8]"), 8, "must be an integer"));
  CHECK(refuses(one("F32", "[02]", "[0,8]"), 8, "must be an integer"));
  CHECK(refuses(one("F32", "2", "[0,8]"), 8, "must be a list"));
  CHECK(refuses(one("F32", "[2]", "[0,8,8]"), 8, "two data_offsets"));
  CHECK(refuses(one("C64", "[2]", "[0,16]"), 2, "no element type"));
  CHECK(
      refuses(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}})", 8, "'a': has the unknown field 'x'"));
  CHECK(refuses(R"({"a":{"shape":[2],"data_offsets":[0,8]}})", 8, "has no dtype"));
  CHECK(refuses(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4, "has no shape"));
  CHECK(refuses("{" + std::string(kA) + "," + kA + "}", 8, "stands here twice"));
  CHECK(refuses("{" + std::string(kA) + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})", 8, "overlaps"));
  CHECK(refuses(R"({"a":1})", 0, "must be an object"));
  CHECK(refuses(R"({"__metadata__":{"x":1}})", 0, "must be a string"));
  CHECK(refuses("[]", 0, "no JSON object"));
  CHECK(refuses(" {}", 0, "no JSON object"));
  CHECK(refuses("{}x", 0, "followed by something else"));
  CHECK(refuses("{\"\xff\":1}", 0, "named values"));
  CHECK(refuses("{\"a\\ud800\":1}", 0, "named values"));
  CHECK(refuses(R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8, "stands here twice"));
}

TEST_CASE("headers that claim more than there is are refused without being read") {
  CHECK(wire::parse_safetensors("", 0).problems()[0].code == Code::kMalformedFile);
  CHECK(wire::parse_safetensors("1234567", 7).problems()[0].code == Code::kMalformedFile);
  CHECK(wire::parse_safetensors(std::string(8, '\xff'), 8).problems()[0].code == Code::kLimitExceeded);
  // What torch.save writes is named, with what to do.
  const std::string archive("PK\3\4\0\0\10\10\0\0", 10);
  CHECK(wire::parse_safetensors(archive, 10).problems()[0].hint.find("save_file") != std::string::npos);
  const Diagnostic model = wire::parse_safetensors("\10\12\22\7pytorch\32", 12).problems()[0];
  CHECK(model.message == "it is no safetensors file: it does not begin with a header");
  CHECK(model.hint.find("`run --save`") != std::string::npos);
  CHECK(wire::parse_safetensors(std::string("\x10\0\0\0\0\0\0\0{}", 10), 10).problems()[0].code ==
        Code::kMalformedFile);
}

TEST_CASE("what is written reads back, aligned to its elements") {
  std::string folder = (fs::temp_directory_path() / "graphpipe-tensors-XXXXXX").string();
  REQUIRE(::mkdtemp(folder.data()) != nullptr);
  const std::string path = folder + "/w.safetensors";
  const std::vector<TensorToWrite> tensors = {{ModelText("mask"), ir::DType::kBool, {3}},
                                              {ModelText("w \"1\" <\xe2\x82\xac>"), ir::DType::kFloat32, {2, 3}},
                                              {ModelText("none"), ir::DType::kFloat64, {0, 7}},
                                              {ModelText("n"), ir::DType::kInt64, {}}};
  const auto source = [&](size_t index, const ByteSink& sink) -> Status {
    const std::vector<int64_t> lengths = {3, 24, 0, 8};
    for (int64_t i = 0; i < lengths[index]; ++i) GP_TRY_VOID(sink(std::string(1, static_cast<char>('a' + index))));
    return Ok{};
  };
  REQUIRE(write_safetensors(path, tensors, source, {{ModelText("step"), ModelText("5")}}).ok());
  const Result<SafetensorsIndex> index = read_safetensors(path);
  REQUIRE(index.ok());
  REQUIRE(index->tensors.size() == 4);
  const std::string bytes = read_file(path, 10000).value();
  for (const TensorEntry& tensor : index->tensors) {
    CHECK(tensor.offset % ir::bytes_per_element(tensor.dtype) == 0);
    const auto same = [&](const TensorToWrite& t) { return t.name == tensor.name; };
    const auto origin = std::find_if(tensors.begin(), tensors.end(), same);
    REQUIRE(origin != tensors.end());
    CHECK(tensor.shape == origin->shape);
    const char letter = static_cast<char>('a' + (origin - tensors.begin()));
    CHECK(bytes.substr(static_cast<size_t>(tensor.offset), static_cast<size_t>(tensor.length)) ==
          std::string(static_cast<size_t>(tensor.length), letter));
  }
  CHECK(index->metadata == TensorMetadata{{ModelText("step"), ModelText("5")}});

  const auto short_source = [](size_t, const ByteSink& sink) { return sink("x"); };
  CHECK(write_safetensors(path, tensors, short_source).problems()[0].code == Code::kUnreadableFile);
  CHECK(write_safetensors(path, {tensors[0], tensors[0]}, source).problems()[0].code == Code::kBadModel);
  CHECK(write_safetensors(path, {{ModelText("\xff"), ir::DType::kBool, {}}}, source).problems()[0].code ==
        Code::kBadModel);
  CHECK(read_safetensors(path).value() == *index);
  CHECK(read_safetensors(folder + "/none").problems()[0].code == Code::kUnreadableFile);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace graphpipe::files
