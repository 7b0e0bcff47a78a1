// A generated folder says nothing of where it was made, and a plan file cannot say what a model may read.

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "tests/driver/ask.h"
#include "tests/support/onnx_text.h"

using namespace graphpipe;
using namespace graphpipe::tests;

namespace generate_test {
namespace {

namespace fs = std::filesystem;
namespace pb = graphpipe_onnx;
using graphpipe::testing::TemporaryFolder;

std::string read_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A linear layer whose weight lies in `location`.
void write_model(const TemporaryFolder& folder, const std::string& name, const std::string& location,
                 const std::string& nodes = "y = MatMul(x, w)") {
  pb::ModelProto model =
      graphpipe::testing::parse_onnx_text(text("g (float[N,8] x, float[8,8] w) => (float[N,8] y) { ", nodes, " }"));
  model.mutable_graph()->mutable_input()->RemoveLast();
  pb::TensorProto& weight = *model.mutable_graph()->add_initializer();
  weight.set_name("w");
  weight.set_data_type(pb::TensorProto::FLOAT);
  weight.add_dims(8);
  weight.add_dims(8);
  weight.set_data_location(pb::TensorProto::EXTERNAL);
  auto& entry = *weight.add_external_data();
  entry.set_key("location");
  entry.set_value(location);
  folder.write(name, model.SerializeAsString());
}

std::vector<std::string> plan_words(const std::string& model, const std::string& plan) {
  return {"plan", model,    "--cluster", "default", "--devices", "2", "--batch",
          "4",    "--loss", "mse:y,t",   "-o",      plan,        "-q"};
}

// The folder's files and their bytes, links followed.
std::map<std::string, std::string> files_of(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) files[entry.path().lexically_relative(folder)] = read_bytes(entry.path());
  return files;
}

}  // namespace

TEST_CASE("copies of a model in two folders generate the same bytes") {
  const TemporaryFolder folder;
  for (const std::string where : {"one", "another/place"}) {
    write_model(folder, where + "/model.onnx", "w.data");
    folder.write(where + "/w.data", std::string(256, '\0'));
    REQUIRE(ask(plan_words(folder / (where + "/model.onnx"), folder / (where + "/plan.json"))).code == 0);
    REQUIRE(ask({"generate", folder / (where + "/plan.json"), "-o", folder / (where + "/out"), "-q"}).code == 0);
  }
  const auto one = files_of(folder / "one/out"), another = files_of(folder / "another/place/out");
  CHECK(one == another);
  const fs::path place = fs::path(folder / "one").parent_path();
  for (const auto& [name, bytes] : one) {
    CAPTURE(name);
    CHECK(bytes.find(place.string()) == bytes.npos);
  }
  // The folder still knows its model, also where it was copied to.
  fs::copy(folder / "one/out", folder / "copy", fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  for (const std::string known : {"one/out", "copy"}) CHECK(ask({"simulate", folder / known, "-q"}).code == 0);
  CHECK(ask({"generate", folder / "copy", "-o", folder / "again", "-q"}).code == 0);
  CHECK(files_of(folder / "again") == one);
  fs::remove(folder / "one/model.onnx");
  CHECK(holds(ask({"simulate", folder / "copy"}).err, folder / "one/model.onnx"));
}

TEST_CASE("a model of float32 that computes in float16 inside takes the flags of the loss scale") {
  const TemporaryFolder folder;
  folder.write("w.data", std::string(256, '\0'));
  const auto refusal_of = [&](const std::string& nodes) {
    write_model(folder, "model.onnx", "w.data", nodes);
    fs::remove_all(folder / "out");
    REQUIRE(ask(plan_words(folder / "model.onnx", folder / "plan.json")).code == 0);
    REQUIRE(ask({"generate", folder / "plan.json", "-o", folder / "out", "-q"}).code == 0);
    return ask({"run", folder / "out", "--loss-scale", "0"}).err;
  };
  const std::string unused = "computes no gradient in float16";
  CHECK(holds(refusal_of("y = MatMul(x, w)"), unused));
  // It goes on to the next refusal: nothing is built.
  const std::string refusal =
      refusal_of("a = Cast <to = 10> (x) b = Cast <to = 10> (w) c = MatMul(a, b) y = Cast <to = 1> (c)");
  CHECK_FALSE(holds(refusal, unused));
  CHECK(holds(refusal, "build"));
}

TEST_CASE("a stage's table has all names of a tied parameter, by which groups of a run may name it") {
  const TemporaryFolder folder;
  write_model(folder, "model.onnx", "w.data");
  folder.write("w.data", std::string(256, '\0'));
  folder.write("rules.txt", "head.weight tie w\n");
  std::vector<std::string> words = plan_words(folder / "model.onnx", folder / "plan.json");
  words.insert(words.end(), {"--stages", "1", "--parameters", folder / "rules.txt"});
  REQUIRE(ask(words).code == 0);
  REQUIRE(ask({"generate", folder / "plan.json", "-o", folder / "out", "-q"}).code == 0);
  const std::string table = files_of(folder / "out").at("stages/stage0/table.cpp");
  CHECK(table.find("kAliases0[] = {\n    \"head.weight\",\n}") != std::string::npos);
  CHECK(table.find("ParamRole::kTrainable, -1, false, kAliases0}") != std::string::npos);
}

TEST_CASE("profile does not write over the weights that it measures with") {
  const TemporaryFolder folder;
  write_model(folder, "model.onnx", "w.data");
  const std::string weights(256, '\0');
  folder.write("w.data", weights);
  const Answer answer = ask({"profile", folder / "model.onnx", "--loss", "mse:y,t", "-o", folder / "w.data"});
  CHECK(answer.code == 2);
  CHECK(holds(answer.err, "is read by the same command"));
  CHECK(read_bytes(folder / "w.data") == weights);
}

namespace {

/// As on a disk that has room for files of so many bytes: larger ones cannot be written.
class SmallFiles {
 public:
  explicit SmallFiles(rlim_t bytes) : handler_(signal(SIGXFSZ, SIG_IGN)) {
    REQUIRE(getrlimit(RLIMIT_FSIZE, &limit_) == 0);
    const rlimit small{bytes, limit_.rlim_max};
    REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  }
  ~SmallFiles() {
    setrlimit(RLIMIT_FSIZE, &limit_);
    signal(SIGXFSZ, handler_);
  }
  SmallFiles(const SmallFiles&) = delete;
  SmallFiles& operator=(const SmallFiles&) = delete;

 private:
  sighandler_t handler_;
  rlimit limit_{};
};

}  // namespace

TEST_CASE("a folder that a full disk has left behind is completed when there is room again") {
  const TemporaryFolder folder;
  write_model(folder, "model.onnx", "w.data");
  folder.write("w.data", std::string(256, '\0'));
  const std::string plan = folder / "plan.json";
  REQUIRE(ask(plan_words(folder / "model.onnx", plan)).code == 0);
  REQUIRE(ask({"generate", plan, "-o", folder / "whole", "-q"}).code == 0);
  const auto whole = files_of(folder / "whole");
  std::set<size_t> sizes = {0, 1};
  for (const auto& [name, bytes] : whole) sizes.insert(bytes.size() - 1);
  size_t stopped = 0;
  for (const size_t room : sizes) {
    CAPTURE(room);
    for (const std::string before : {"fresh", "whole"}) {
      const std::string out = folder / text(before, room);
      if (before == "whole") {
        fs::copy(folder / "whole", out, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
        fs::remove(out + "/manifest.txt");
        fs::resize_file(out + "/CMakeLists.txt", fs::file_size(out + "/CMakeLists.txt") - 10);
      }
      {
        const SmallFiles full(room);
        const Answer answer = ask({"generate", plan, "-o", out, "-q"});
        CAPTURE(answer.err);
        CHECK((answer.code == 0 || answer.code == 5));
        stopped += answer.code == 5 ? 1 : 0;
      }
      const Answer again = ask({"generate", plan, "-o", out, "-q"});
      CAPTURE(again.err);
      CHECK(again.code == 0);
      CHECK(files_of(out) == whole);
    }
  }
  CHECK(stopped > sizes.size());
}

TEST_CASE("a file of somebody's own is not replaced by the link to the model") {
  const TemporaryFolder folder;
  write_model(folder, "model.onnx", "w.data");
  folder.write("w.data", std::string(256, '\0'));
  REQUIRE(ask(plan_words(folder / "model.onnx", folder / "plan.json")).code == 0);
  REQUIRE(ask({"generate", folder / "plan.json", "-o", folder / "out", "-q"}).code == 0);
  fs::remove(folder / "out/model.onnx");
  folder.write("out/model.onnx", "mine");
  const Answer answer = ask({"generate", folder / "plan.json", "-o", folder / "out"});
  CHECK(answer.code == 2);
  CHECK(holds(answer.err, "out/model.onnx"));
  CHECK(read_bytes(folder / "out/model.onnx") == "mine");
}

TEST_CASE("a refusal leaves a folder as it was, and no plan is replaced by another that did not come from it") {
  const TemporaryFolder folder;
  for (const std::string place : {"a", "mine"}) {
    write_model(folder, place + "/model.onnx", "w.data");
    folder.write(place + "/w.data", std::string(256, '\0'));
  }
  REQUIRE(ask(plan_words(folder / "a/model.onnx", folder / "a/plan.json")).code == 0);
  std::vector<std::string> other = plan_words(folder / "mine/model.onnx", folder / "mine/plan.json");
  other.insert(other.end(), {"--micro-batch", "1"});
  REQUIRE(ask(other).code == 0);
  const auto before = files_of(folder / "mine");
  const Answer beside_model = ask({"generate", folder / "a/plan.json", "-o", folder / "mine"});
  CHECK(beside_model.code == 2);
  CHECK(holds(beside_model.err, "model.onnx"));
  CHECK(files_of(folder / "mine") == before);
  fs::remove(folder / "mine/model.onnx");
  fs::remove(folder / "mine/w.data");
  const Answer beside_plan = ask({"generate", folder / "a/plan.json", "-o", folder / "mine"});
  CHECK(beside_plan.code == 2);
  CHECK(holds(beside_plan.err, "a plan stands here"));
  CHECK(read_bytes(folder / "mine/plan.json") == before.at("plan.json"));
  // The plan itself may lie where it is generated.
  fs::create_directory(folder / "out");
  REQUIRE(ask(plan_words(folder / "a/model.onnx", folder / "out/plan.json")).code == 0);
  CHECK(ask({"generate", folder / "out/plan.json", "-o", folder / "out", "-q"}).code == 0);
}

TEST_CASE("a plan file does not say what its model may read") {
  const TemporaryFolder folder;
  folder.write("store/secret", std::string(256, '\0'));
  write_model(folder, "in/model.onnx", "w.data");
  fs::create_symlink("../store/secret", folder / "in/w.data");
  const std::string plan = folder / "in/plan.json", root = folder / "store";
  std::vector<std::string> words = plan_words(folder / "in/model.onnx", plan);
  CHECK(ask(words).code == 3);
  words.insert(words.end(), {"--trusted-root", root});
  REQUIRE(ask(words).code == 0);

  // The user said it to `plan`; whoever takes the file afterwards has said nothing.
  CHECK(read_bytes(plan).find("store") == std::string::npos);
  for (const std::string verb : {"generate", "export"}) {
    CAPTURE(verb);
    std::vector<std::string> reading{verb, plan, "-o", folder / "out.safetensors"};
    if (verb == "export") reading.insert(reading.end(), {"--weights", folder / "store/secret"});
    const Answer refused = ask(reading);
    CHECK(refused.code == 3);
    CHECK(holds(refused.err, "w.data"));
    CHECK_FALSE(fs::exists(folder / "out.safetensors"));
  }
  CHECK(ask({"simulate", plan}).code == 3);
  CHECK(ask({"simulate", plan, "--trusted-root", root, "-q"}).code == 0);
  CHECK(ask({"generate", plan, "-o", folder / "out", "--trusted-root", root, "-q"}).code == 0);

  // The attack: a plan from elsewhere that brings the permission with it.
  std::string attack = read_bytes(plan);
  attack.insert(attack.find("\"model\""), "\"trusted_root\": \"" + root + "\",\n ");
  folder.write("in/attack.json", attack);
  const Answer refused = ask({"generate", folder / "in/attack.json", "-o", folder / "attacked"});
  CHECK(refused.code == 3);
  CHECK(holds(refused.err, "trusted_root"));
  CHECK_FALSE(fs::exists(folder / "attacked"));
}

}  // namespace generate_test
