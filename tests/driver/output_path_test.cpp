// What -o, --save and their like may be written over.

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/driver/ask.h"
#include "wire/manifest.h"

using namespace graphpipe;
using namespace graphpipe::tests;

namespace {

namespace fs = std::filesystem;

class OutputsFolder {
 public:
  OutputsFolder() : path_((fs::temp_directory_path() / "graphpipe-outputs-XXXXXX").string()) {
    REQUIRE(::mkdtemp(path_.data()) != nullptr);
  }
  ~OutputsFolder() { fs::remove_all(path_); }
  OutputsFolder(const OutputsFolder&) = delete;
  OutputsFolder& operator=(const OutputsFolder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  void write(const std::string& name, const std::string& bytes) const {
    fs::create_directories(fs::path(path_ + "/" + name).parent_path());
    std::ofstream(path_ + "/" + name, std::ios::binary) << bytes;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string bytes_at(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool mentions(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("no command writes over what it reads") {
  const OutputsFolder folder;
  fs::copy_file(GRAPHPIPE_SOURCE_DIR "/tests/data/models/dlrm/model.onnx", folder / "model.onnx");
  const std::string model = bytes_at(folder / "model.onnx");
  fs::create_symlink("model.onnx", folder / "link.onnx");
  folder.write("dag.json", R"({"predecessors": [[], [0]], "micro_batches": 2})");
  const std::string dag = bytes_at(folder / "dag.json");
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"plan", folder / "model.onnx", "-o", folder / "model.onnx"},
        {"plan", folder / "model.onnx", "-o", folder / "link.onnx"},
        {"plan", folder / "link.onnx", "-o", folder / "./model.onnx"},
        {"schedule", "--dag", folder / "dag.json", "-o", folder / "dag.json"},
        {"simulate", folder / "dag.json", "-o", folder / "dag.json"}}) {
    const Answer answer = ask(words);
    CAPTURE(answer.err);
    CHECK(answer.code == 2);
    CHECK(mentions(answer.err, "is read by the same command"));
  }
  CHECK(bytes_at(folder / "model.onnx") == model);
  CHECK(bytes_at(folder / "dag.json") == dag);
}

TEST_CASE("a schedule goes through a link and into a pipe, and the path is tried before the work") {
  const OutputsFolder folder;
  folder.write("target", "old");
  fs::create_symlink("target", folder / "link");
  CHECK(ask({"schedule", "--ranks", "2", "--micro-batches", "4", "--format", "csv", "-o", folder / "link"}).code == 0);
  CHECK(fs::is_symlink(folder / "link"));
  CHECK(mentions(bytes_at(folder / "target"), "0F0"));
  CHECK(ask({"schedule", "--ranks", "2", "--micro-batches", "4", "-o", folder.path()}).code == 5);
  CHECK(ask({"plan", "no_such_model.onnx", "-o", folder / "missing/plan.json"}).code == 5);
}

TEST_CASE("a run does not write over its folder, its programs or its data") {
  const OutputsFolder folder;
  const std::string digest(64, 'a');
  folder.write("manifest.txt",
               wire::print_manifest({.plan = digest, .files = {{.path = "stage0.cpp", .size = 1, .sha256 = digest}}}));
  for (const char* name : {"plan.json", "stage0.cpp", "weights.safetensors", "build/device0", "data/x.npy"})
    folder.write(name, "kept");
  fs::create_hard_link(folder / "data/x.npy", folder / "alias");
  fs::create_symlink(folder / "plan.json", folder / "link");
  const std::vector<std::pair<std::string, std::string>> cases = {{"plan.json", "plan"},
                                                                  {"./plan.json", "plan"},
                                                                  {"link", "plan"},
                                                                  {"manifest.txt", "manifest"},
                                                                  {"weights.safetensors", "initial weights"},
                                                                  {"stage0.cpp", "made from"},
                                                                  {"build/device0", "programs"},
                                                                  {"build/new", "programs"},
                                                                  {"data/x.npy", "training data"},
                                                                  {"alias", "training data"}};
  for (const char* flag : {"--save", "--trace", "--save-gradients", "--save-outputs"}) {
    for (const auto& [name, words] : cases) {
      CAPTURE(name);
      const Answer answer = ask({"run", folder.path(), "--data", folder / "data", flag, folder / name});
      CHECK(answer.code == 2);
      CHECK(mentions(answer.err, words));
    }
  }
  CHECK(bytes_at(folder / "data/x.npy") == "kept");
  CHECK(bytes_at(folder / "plan.json") == "kept");
}
