// Data files of a model become part of a generated folder without a copy, as far as programs can read them as they are.

#include "driver/launch/weight_files.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "files/safetensors.h"
#include "tests/driver/ask.h"
#include "tests/support/onnx_text.h"
#include "wire/manifest.h"
#include "wire/weight_parts.h"

using namespace graphpipe;
using namespace graphpipe::tests;

namespace weight_files_test {
namespace {

namespace fs = std::filesystem;
namespace pb = graphpipe_onnx;
using graphpipe::testing::TemporaryFolder;

constexpr int64_t kBytes = 8 * 8 * 4;

struct Place {
  std::string name, location;
  int64_t offset = 0;
};

// y = x a b, the weights being 8x8 floats; one without a place stands in the model file.
void write_model(const std::string& path, const std::vector<Place>& places) {
  pb::ModelProto model = graphpipe::testing::parse_onnx_text(
      "g (float[N,8] x, float[8,8] a, float[8,8] b) => (float[N,8] y) { h = MatMul(x, a) y = MatMul(h, b) }");
  model.mutable_graph()->mutable_input()->DeleteSubrange(1, 2);
  for (const Place& place : places) {
    pb::TensorProto& weight = *model.mutable_graph()->add_initializer();
    weight.set_name(place.name);
    weight.set_data_type(pb::TensorProto::FLOAT);
    for (int i = 0; i < 2; ++i) weight.add_dims(8);
    if (place.location.empty()) {
      weight.set_raw_data(std::string(kBytes, '\1'));
      continue;
    }
    weight.set_data_location(pb::TensorProto::EXTERNAL);
    for (const auto& [key, value] :
         std::map<std::string, std::string>{{"location", place.location}, {"offset", std::to_string(place.offset)}}) {
      auto& entry = *weight.add_external_data();
      entry.set_key(key);
      entry.set_value(value);
    }
  }
  std::ofstream(path, std::ios::binary) << model.SerializeAsString();
}

std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

enum class DataFile : uint8_t { kCopied, kLinked };

// Plans and generates NAME/model.onnx into `out`; what `generate` answers.
Answer generate(const std::string& model, const std::string& out, const std::vector<std::string>& flags = {},
                DataFile data = DataFile::kCopied) {
  const std::string plan = model + ".plan.json";
  std::vector<std::string> words{"plan", model,    "--cluster", "default", "--devices", "2", "--batch",
                                 "4",    "--loss", "mse:y,t",   "-o",      plan,        "-q"};
  words.insert(words.end(), flags.begin(), flags.end());
  const Answer planned = ask(words);
  CAPTURE(planned.err);
  REQUIRE(planned.code == 0);
  words = {"generate", plan, "-o", out};
  if (data == DataFile::kLinked) words.emplace_back("--link-weights");
  words.insert(words.end(), flags.begin(), flags.end());
  return ask(words);
}

std::vector<std::string> copied_names(const std::string& out) {
  std::vector<std::string> names;
  const auto index = files::read_safetensors(out + "/weights.safetensors");
  REQUIRE(index.ok());
  for (const auto& tensor : index->tensors) names.emplace_back(tensor.name.raw());
  return names;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE(
    "the folder gets a copy of a data file, or as --link-weights says a further name of it, and a table of its parts") {
  const TemporaryFolder folder;
  folder.write("in/w.data", std::string(4 + 2 * kBytes, '\2'));
  const std::string model = folder / "in/model.onnx", data = folder / "in/w.data", out = folder / "out";
  write_model(model, {{"a", "w.data", 4}, {"b", "w.data", 4 + kBytes}});
  const auto link = [&] { return generate(model, out, {}, DataFile::kLinked); };
  CHECK(generate(model, out).err.empty());
  // Readers of the model refuse data files of several names.
  CHECK(fs::hard_link_count(data) == 1);
  CHECK(read_bytes(out + "/weights/0.bin") == read_bytes(data));
  CHECK(copied_names(out).empty());
  CHECK(link().err.empty());
  CHECK(fs::equivalent(out + "/weights/0.bin", data));
  CHECK(copied_names(out).empty());
  CHECK(read_bytes(out + "/weights.txt") ==
        "graphpipe-weights 1\npart 0 4 float32 [8,8] a\npart 0 260 float32 [8,8] b\n");
  // The same again: the link stays, and the model is read without a note on links.
  CHECK(link().err.empty());
  CHECK(fs::hard_link_count(data) == 2);
  CHECK(ask({"inspect", model}).err.empty());
  // A new file under the model's name takes its place, and the old one is left as it is.
  const std::string other = folder / "other";
  fs::copy_file(data, other);
  fs::rename(other, data);
  CHECK_FALSE(fs::equivalent(out + "/weights/0.bin", data));
  CHECK(link().err.empty());
  CHECK(fs::equivalent(out + "/weights/0.bin", data));
  // And back to a copy, which leaves the model's file as it is.
  CHECK(generate(model, out).err.empty());
  CHECK(fs::hard_link_count(data) == 1);
  CHECK(read_bytes(out + "/weights/0.bin") == read_bytes(data));
}

TEST_CASE("what programs cannot read where it lies is copied") {
  const TemporaryFolder folder;
  folder.write("in/odd", std::string(1 + kBytes, '\2'));
  folder.write("in/mostly_others", std::string(3 * kBytes, '\2'));
  folder.write("in/w.data", std::string(kBytes, '\2'));
  const std::string model = folder / "in/model.onnx", out = folder / "out";
  write_model(model, {{"a", "odd", 1}, {"b", "w.data"}});
  REQUIRE(generate(model, out).code == 0);
  CHECK(copied_names(out) == Names{"a"});
  CHECK(read_bytes(out + "/weights/0.bin") == std::string(kBytes, '\2'));
  write_model(model, {{"a", "mostly_others"}, {"b", ""}});
  REQUIRE(generate(model, out).code == 0);
  CHECK(copied_names(out) == Names{"a", "b"});
  // What the last generation wrote is gone, so that nobody reads it.
  CHECK_FALSE(fs::exists(out + "/weights.txt"));
  CHECK_FALSE(fs::exists(out + "/weights/0.bin"));
}

TEST_CASE("data that may be reached by a link only in a trusted root are linked to themselves") {
  const TemporaryFolder folder;
  folder.write("store/blob", std::string(2 * kBytes, '\2'));
  folder.write("in/keep", "");
  fs::create_symlink("../store/blob", folder / "in/w.data");
  const std::string model = folder / "in/model.onnx", out = folder / "out";
  write_model(model, {{"a", "w.data"}, {"b", "w.data", kBytes}});
  REQUIRE(generate(model, out, {"--trusted-root", folder / "store"}, DataFile::kLinked).code == 0);
  CHECK_FALSE(fs::is_symlink(out + "/weights/0.bin"));
  CHECK(fs::equivalent(out + "/weights/0.bin", folder / "store/blob"));
}

TEST_CASE("where no further name can be made the folder has a copy, and `generate` says so") {
  const TemporaryFolder folder;
  std::string shared = "/dev/shm/graphpipe-weights-XXXXXX";
  struct stat here {
  }, there{};
  REQUIRE(stat((folder / "").c_str(), &here) == 0);
  if (stat("/dev/shm", &there) != 0 || here.st_dev == there.st_dev || mkdtemp(shared.data()) == nullptr) {
    MESSAGE("not run: no second file system");
    return;
  }
  const std::string model = shared + "/model.onnx", data = shared + "/w.data", out = folder / "out";
  std::ofstream(data) << std::string(2 * kBytes, '\2');
  write_model(model, {{"a", "w.data"}, {"b", "w.data", kBytes}});
  const Answer answer = generate(model, out, {}, DataFile::kLinked);
  CHECK(answer.code == 0);
  CHECK(holds(answer.err, "the folder has a copy of this data file"));
  CHECK(read_bytes(out + "/weights/0.bin") == read_bytes(data));
  CHECK(copied_names(out).empty());
  // It is its own: writing over the model's data leaves it as it is.
  std::ofstream(data) << "new";
  CHECK(fs::file_size(out + "/weights/0.bin") == 2 * kBytes);
  fs::remove_all(shared);
}

TEST_CASE("a data file of somebody else's is copied") {
  if (geteuid() != 0) {
    MESSAGE("not run: only root gives files away");
    return;
  }
  const TemporaryFolder folder;
  folder.write("in/w.data", std::string(2 * kBytes, '\2'));
  const std::string model = folder / "in/model.onnx", data = folder / "in/w.data", out = folder / "out";
  REQUIRE(chown(data.c_str(), 1, 1) == 0);
  write_model(model, {{"a", "w.data"}, {"b", "w.data", kBytes}});
  const Answer answer = generate(model, out, {}, DataFile::kLinked);
  CHECK(holds(answer.err, "the file belongs to another user"));
  CHECK(fs::hard_link_count(data) == 1);
  CHECK(read_bytes(out + "/weights/0.bin") == read_bytes(data));
}

TEST_CASE("nobody's file is replaced by a data file, and none is written through a link") {
  const TemporaryFolder folder;
  folder.write("in/w.data", std::string(2 * kBytes, '\2'));
  const std::string model = folder / "in/model.onnx", out = folder / "out";
  write_model(model, {{"a", "w.data"}, {"b", "w.data", kBytes}});
  REQUIRE(generate(model, out).code == 0);
  // As after an interrupt: everything is there but the list of it.
  fs::remove(out + "/manifest.txt");
  CHECK(generate(model, out).code == 0);
  fs::remove(out + "/manifest.txt");
  fs::remove(out + "/weights.txt");
  const Answer mine = generate(model, out);
  CHECK(mine.code == 2);
  CHECK(holds(mine.err, "out/weights/0.bin"));
  fs::remove_all(out + "/weights");
  folder.write("elsewhere/keep", "");
  fs::create_directory_symlink(folder / "elsewhere", out + "/weights");
  CHECK(generate(model, out).code == 3);
  CHECK_FALSE(fs::exists(folder / "elsewhere/0.bin"));
}

TEST_CASE("names that a file of trained weights could not hold are refused also where nothing is copied") {
  const TemporaryFolder folder;
  folder.write("in/w.data", std::string(kBytes, '\2'));
  ir::Graph graph;
  const ir::TensorType type{.dtype = ir::DType::kFloat32, .shape = {ir::Dim::fixed(kBytes / 4)}};
  for (int i = 0; i < 2; ++i) {
    ir::Param param;
    param.name = ModelText("twice");
    param.data = ir::FileRange{folder / "in/w.data", 0, kBytes};
    graph.add_param(std::move(param), {.type = type});
  }
  const driver::WeightOrigin origin{.model = folder / "in/model.onnx", .trusted_root = ""};
  const auto shared = driver::find_shared_weights(graph, origin);
  REQUIRE(shared.ok());
  CHECK(shared->parts.size() == 2);
  wire::Manifest manifest;
  const auto written = driver::write_weight_files(folder / "out", graph, origin, *shared, manifest);
  CHECK(graphpipe::testing::reports(written.problems(), Code::kBadModel, "two tensors have this name"));
}

TEST_CASE("a model of a few bytes whose constant would fill terabytes is looked through at once") {
  const TemporaryFolder folder;
  std::ofstream(folder / "model.onnx", std::ios::binary)
      << graphpipe::testing::parse_onnx_text(R"(g (float[N,3] x) => (float[N,3] y) {
  s = Constant<value_ints = [1099511627776]>()
  k = ConstantOfShape(s)
  q = ReduceSum<keepdims = 0>(k)
  y = Mul(x, q)
})")
             .SerializeAsString();
  const Answer answer = ask({"lint", folder / "model.onnx"});
  CAPTURE(answer.err);
  CHECK(answer.code == 0);
}

TEST_CASE("the manifest has the digest of a data file") {
  const TemporaryFolder folder;
  folder.write("in/w.data", std::string(2 * kBytes, '\2'));
  const std::string model = folder / "in/model.onnx", out = folder / "out";
  write_model(model, {{"a", "w.data"}, {"b", "w.data", kBytes}});
  REQUIRE(generate(model, out).code == 0);
  wire::Manifest manifest;
  std::string problem;
  REQUIRE(wire::parse_manifest(read_bytes(out + "/manifest.txt"), manifest, problem));
  const auto entry = std::ranges::find(manifest.files, "weights/0.bin", &wire::ManifestEntry::path);
  REQUIRE(entry != manifest.files.end());
  CHECK(entry->size == 2 * kBytes);
  // sha256sum of 512 bytes of 2.
  CHECK(entry->sha256 == "1bd8d04bb127c9dbdb406c3c213b202c84dc75f122ecd553b02fb322bffafdc9");
}

TEST_CASE("a plan does not hold for another shape in a data file") {
  const TemporaryFolder folder;
  const std::string model = folder / "model.onnx", plan = folder / "plan.json";
  pb::ModelProto read = graphpipe::testing::parse_onnx_text(
      R"(g (float[N,8] x, int64[3] s) => (float[N,4] y) {
        w = Constant<value = float[8,8] {1,2,3,4,5,6,7,8, 1,2,3,4,5,6,7,8, 1,2,3,4,5,6,7,8, 1,2,3,4,5,6,7,8,
                                         1,2,3,4,5,6,7,8, 1,2,3,4,5,6,7,8, 1,2,3,4,5,6,7,8, 1,2,3,4,5,6,7,8}>()
        last = Constant<value_ints = [2]>()
        h = MatMul(x, w)
        r = Reshape(h, s)
        y = ReduceMean<keepdims = 0>(r, last) })");
  read.mutable_graph()->mutable_input()->DeleteSubrange(1, 1);
  pb::TensorProto& shape = *read.mutable_graph()->add_initializer();
  shape.set_name("s");
  shape.set_data_type(pb::TensorProto::INT64);
  shape.add_dims(3);
  shape.set_data_location(pb::TensorProto::EXTERNAL);
  auto& location = *shape.add_external_data();
  location.set_key("location");
  location.set_value("s.bin");
  std::ofstream(model, std::ios::binary) << read.SerializeAsString();
  const auto write = [&](int64_t rows, int64_t columns) {
    const std::array<int64_t, 3> sizes = {0, rows, columns};
    folder.write("s.bin", std::string(reinterpret_cast<const char*>(sizes.data()), sizeof sizes));
  };
  write(4, 2);
  const Answer planned = ask(
      {"plan", model, "--cluster", "default", "--devices", "1", "--batch", "4", "--loss", "mse:y,t", "-o", plan, "-q"});
  CAPTURE(planned.err);
  REQUIRE(planned.code == 0);
  CHECK(ask({"simulate", plan, "-q"}).code == 0);
  write(2, 4);
  const Answer other = ask({"simulate", plan, "-q"});
  CHECK(other.code == 3);
  CHECK(holds(other.err, "its digest differs"));
}

TEST_CASE("a plan holds for other weights of the same model, and not for a data file of another size") {
  const TemporaryFolder folder;
  const std::string model = folder / "model.onnx", plan = folder / "plan.json";
  write_model(model, {{"a", "w.bin", 0}, {"b", "w.bin", kBytes}});
  folder.write("w.bin", std::string(2 * kBytes, '\1'));
  REQUIRE(ask({"plan", model, "--cluster", "default", "--devices", "2", "--batch", "4", "--loss", "mse:y,t", "-o", plan,
               "-q"})
              .code == 0);
  folder.write("w.bin", std::string(2 * kBytes, '\2'));
  CHECK(ask({"simulate", plan, "-q"}).code == 0);
  folder.write("w.bin", std::string(2 * kBytes + 4, '\2'));
  const Answer longer = ask({"simulate", plan, "-q"});
  CHECK(longer.code == 3);
  CHECK(holds(longer.err, "its digest differs"));
}

}  // namespace weight_files_test
