// The table of the weights that lie in data files as the model has them.

#include "wire/weight_parts.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

using namespace graphpipe;
using namespace graphpipe::wire;
namespace fs = std::filesystem;

namespace {

class GeneratedFolder {
 public:
  GeneratedFolder() {
    REQUIRE(mkdtemp(path_.data()) != nullptr);
    fs::create_directories(path_ + "/weights");
  }
  ~GeneratedFolder() { fs::remove_all(path_); }
  void write(const std::string& name, const std::string& bytes) const { std::ofstream(path_ + "/" + name) << bytes; }
  const std::string& path() const { return path_; }

 private:
  std::string path_ = "/tmp/graphpipe-parts-XXXXXX";
};

const std::string kHeader = "graphpipe-weights 1\n";

std::vector<WeightPart> parts() {
  return {{.file = 0,
           .tensor = {.name = ModelText("a b\n%"), .dtype = ElementType::kFloat32, .shape = {2, 3}, .length = 24}},
          {.file = 12,
           .tensor = {.name = ModelText("scale"),
                      .dtype = ElementType::kBFloat16,
                      .shape = {},
                      .offset = int64_t{1} << 40,
                      .length = 2}}};
}

bool refuses_table(const std::string& line) { return !parse_weight_parts(kHeader + line + "\n"); }

}  // namespace

TEST_CASE("a table of weights reads back as it was printed") {
  const std::string text = print_weight_parts(parts());
  CHECK(text == kHeader + "part 0 0 float32 [2,3] a%20b%0a%25\npart 12 1099511627776 bfloat16 [] scale\n");
  CHECK(parse_weight_parts(text) == parts());
  CHECK(parse_weight_parts(kHeader) == std::vector<WeightPart>{});
}

TEST_CASE("a table of weights that is hostile or malformed is refused") {
  CHECK_FALSE(refuses_table("part 0 8 float32 [2] w"));
  for (const char* line :
       {"", "part 0 8 float32 [2]", "part 0 8 float32 [2] w x", "part -1 8 float32 [2] w", "part ../x 8 float32 [2] w",
        "part 1000000 8 float32 [2] w", "part 0 -4 float32 [2] w", "part 0 6 float32 [2] w", "part 0 8 float3 [2] w",
        "part 0 8 float32 [-2] w", "part 0 8 float32 2 w", "part 0 8 float32 [2] %zz",
        "part 0 8 float32 [4611686018427387904,4] w", "part 0 99999999999999999999 float32 [2] w",
        "part 0 8 float32 [2] w\npart 1 8 float32 [2] w"}) {
    CAPTURE(line);
    CHECK(refuses_table(line));
  }
  CHECK_FALSE(parse_weight_parts("graphpipe-weights 2\n"));
  CHECK_FALSE(parse_weight_parts(kHeader + "part 0 8 float32 [2] w"));
}

TEST_CASE("parts lie within their files") {
  const GeneratedFolder folder;
  CHECK(read_weight_parts(folder.path()).value().empty());
  folder.write("weights.txt", kHeader + "part 0 4 float32 [2] w\n");
  CHECK(read_weight_parts(folder.path()).problems().front().code == Code::kUnreadableFile);
  folder.write("weights/0.bin", std::string(12, 'x'));
  CHECK(read_weight_parts(folder.path()).value().front().tensor.offset == 4);
  folder.write("weights/0.bin", std::string(11, 'x'));
  const Diagnostic shorter = read_weight_parts(folder.path()).problems().front();
  CHECK(shorter.code == Code::kMalformedFile);
  CHECK(shorter.message == "the weights 'w' are 8 bytes from byte 4 on, and the file has 11");
  folder.write("weights.txt", kHeader + "part 0 9223372036854775804 float32 [2] w\n");
  CHECK(read_weight_parts(folder.path()).problems().front().code == Code::kMalformedFile);
  folder.write("weights.txt", "mine");
  CHECK(read_weight_parts(folder.path()).problems().front().code == Code::kMalformedFile);
}

TEST_CASE("what of a folder holds weights") {
  CHECK(holds_weights("weights.safetensors"));
  CHECK(holds_weights("weights.txt"));
  CHECK(holds_weights(weight_data_file(3)));
  CHECK_FALSE(holds_weights("stages/weights.txt"));
  CHECK_FALSE(holds_weights("data.txt"));
}
