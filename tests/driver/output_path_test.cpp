// What -o, --save and their like may be written over.

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

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
  std::string name() const { return fs::path(path_).filename(); }

 private:
  std::string path_;
};

std::string bytes_at(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// What a command looks at in a compiled folder before it writes; the link to its model leads to "elsewhere".
void write_compiled(const OutputsFolder& folder) {
  const std::string digest(64, 'a');
  folder.write("manifest.txt",
               wire::print_manifest({.plan = digest, .files = {{.path = "stage0.cpp", .size = 1, .sha256 = digest}}}));
  for (const char* name : {"plan.json", "stage0.cpp", "weights.safetensors", "build/device0", "elsewhere"})
    folder.write(name, "kept");
  fs::create_symlink("elsewhere", folder / "model.onnx");
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
  folder.write("flags.toml", "devices = 2\n");
  folder.write("order.csv", "0F0,0B0\n");
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"plan", folder / "model.onnx", "-o", folder / "model.onnx"},
        {"plan", folder / "model.onnx", "-o", folder / "link.onnx"},
        {"plan", folder / "link.onnx", "-o", folder / "./model.onnx"},
        {"plan", folder / "model.onnx", "--config", folder / "flags.toml", "-o", folder / "flags.toml"},
        {"plan", folder / "model.onnx", "--order", folder / "order.csv", "-o", folder / "order.csv"},
        {"schedule", "--dag", folder / "dag.json", "-o", folder / "dag.json"},
        {"simulate", folder / "dag.json", "-o", folder / "dag.json"},
        {"report", folder / "plan.json", "--measured", folder / "dag.json", "-o", folder / "dag.json"},
        {"export", folder.path(), "--weights", folder / "w.safetensors", "-o", folder / "w.safetensors"}}) {
    const Answer answer = ask(words);
    CAPTURE(answer.err);
    CHECK(answer.code == 2);
    CHECK(mentions(answer.err, "is read by the same command"));
  }
  CHECK(bytes_at(folder / "model.onnx") == model);
  CHECK(bytes_at(folder / "dag.json") == dag);
  const Answer to_stdout = ask({"plan", folder / "model.onnx", "-o", "-"});
  CHECK(to_stdout.code == 2);
  CHECK(mentions(to_stdout.err, "name a file, or ./-"));
}

TEST_CASE("no command writes over the model of a plan that it reads") {
  const OutputsFolder folder;
  fs::copy_file(GRAPHPIPE_SOURCE_DIR "/tests/data/models/dlrm/model.onnx", folder / "model.onnx");
  const std::string plan = folder / "plan.json", model = folder / "model.onnx", before = bytes_at(model);
  REQUIRE(ask({"plan", model, "--cluster", "default", "--policy", "inference", "-o", plan, "-q"}).code == 0);
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"simulate", plan, "--format", "svg", "-o", model},
        {"report", plan, "-o", model},
        {"run", "--pace", plan, "--steps", "1", "--trace", model}}) {
    const Answer answer = ask(words);
    CAPTURE(words.front());
    CAPTURE(answer.err);
    CHECK(answer.code == 2);
    CHECK(mentions(answer.err, "is read by the same command"));
  }
  CHECK(bytes_at(model) == before);
}

TEST_CASE("a pipe in the place of a file is refused, not waited for") {
  const OutputsFolder folder;
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  const Answer answer =
      ask({"plan", GRAPHPIPE_SOURCE_DIR "/tests/data/models/dlrm/model.onnx", "--profile", folder / "pipe"});
  CHECK(answer.code == 3);
  CHECK(mentions(answer.err, "regular file"));
}

TEST_CASE("what -o leads to stays what it is: pipes, devices and links") {
  const OutputsFolder folder;
  const std::string model = GRAPHPIPE_SOURCE_DIR "/tests/data/models/dlrm/model.onnx", plan = folder / "plan.json";
  const auto writes = [&](std::vector<std::string> words, const std::string& name) {
    words.insert(words.end(), {"-o", folder / name});
    return ask(words).code;
  };
  const std::vector<std::string> make_plan = {"plan",      model,     "--devices", "1",
                                              "--cluster", "default", "--policy",  "inference"};
  REQUIRE(writes(make_plan, "plan.json") == 0);
  const std::vector<std::string> verbs[] = {make_plan,
                                            {"simulate", plan, "--format", "svg"},
                                            {"report", plan},
                                            {"schedule", "--ranks", "2", "--micro-batches", "4", "-q"}};
  for (const std::vector<std::string>& words : verbs) {
    CAPTURE(words.front());
    for (const char* name : {"pipe", "device", "target", "link", "nowhere"}) fs::remove(folder / name);
    REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
    std::string read;
    std::thread reader([&] { read = bytes_at(folder / "pipe"); });
    CHECK(writes(words, "pipe") == 0);
    reader.join();
    CHECK(read.size() > 100);
    CHECK(fs::is_fifo(folder / "pipe"));
    folder.write("target", "old");
    fs::create_symlink("target", folder / "link");
    CHECK(writes(words, "link") == 0);
    CHECK(fs::is_symlink(folder / "link"));
    CHECK(bytes_at(folder / "target") == read);
    fs::create_symlink("missing", folder / "nowhere");
    CHECK(writes(words, "nowhere") == 5);
    // A device of its own, so that a defect breaks no other; only root may make one.
    if (::mknod((folder / "device").c_str(), S_IFCHR | 0600, makedev(1, 3)) != 0) continue;
    const int code = writes(words, "device");
    CHECK((code == 0 || code == 5));  // the folder may be mounted without devices
    CHECK(fs::is_character_file(folder / "device"));
  }
}

TEST_CASE("a schedule goes through a link, and the path is tried before the work") {
  const OutputsFolder folder;
  folder.write("target", "old");
  fs::create_symlink("target", folder / "link");
  CHECK(ask({"schedule", "--ranks", "2", "--micro-batches", "4", "--format", "csv", "-o", folder / "link"}).code == 0);
  CHECK(fs::is_symlink(folder / "link"));
  CHECK(mentions(bytes_at(folder / "target"), "0F0"));
  CHECK(ask({"schedule", "--ranks", "2", "--micro-batches", "4", "-o", folder.path()}).code == 5);
  CHECK(ask({"plan", "no_such_model.onnx", "-o", folder / "missing/plan.json"}).code == 5);
}

TEST_CASE("nothing is written over what makes a compiled folder run") {
  const OutputsFolder folder;
  write_compiled(folder);
  for (const std::string name : {"plan.json", "weights.safetensors", "stage0.cpp", "model.onnx", "build/device0"}) {
    CAPTURE(name);
    for (const std::vector<std::string>& words :
         {std::vector<std::string>{"simulate", folder.path(), "--format", "svg"}, {"report", folder.path()}}) {
      std::vector<std::string> all = words;
      all.insert(all.end(), {"-o", folder / name});
      const Answer answer = ask(all);
      CAPTURE(answer.err);
      CHECK(answer.code == 2);
    }
    CHECK(bytes_at(folder / name) == "kept");
  }
  for (const std::vector<std::string>& words : {std::vector<std::string>{"report", folder / "plan.json"},
                                                {"plan", folder / "model.onnx", "--plan", folder.path()},
                                                {"plan", folder / "model.onnx", "--plan", folder / "plan.json"}}) {
    std::vector<std::string> all = words;
    all.insert(all.end(), {"-o", folder / "build/device0"});
    CHECK(mentions(ask(all).err, "this file is the folder's programs"));
  }
  const Answer exported =
      ask({"export", folder.path(), "--weights", folder / "w", "-o", folder / "weights.safetensors"});
  CHECK(exported.code == 2);
  CHECK(mentions(exported.err, "the folder's initial weights"));
}

TEST_CASE("a run does not write over its folder, its programs or what it reads") {
  const OutputsFolder folder;
  write_compiled(folder);
  for (const char* name :
       {"data/x.npy", "evaluated/y.npy", "evaluated/input_0.pb", "evaluated/part/z.tar.gz", "trained.safetensors",
        "kept/step-8/stage0.safetensors", "kept/graphpipe-checkpoints.txt", "flags.toml", "rates.txt"})
    folder.write(name, "kept");
  folder.write("flags.toml", "");
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
                                                                  {"model.onnx", "the model"},
                                                                  {"../" + folder.name() + "/elsewhere", "the model"},
                                                                  {"data/x.npy", "training data"},
                                                                  {"data/new.npy", "training data"},
                                                                  {"alias", "training data"},
                                                                  {"evaluated/y.npy", "training data"},
                                                                  {"evaluated/input_0.pb", "training data"},
                                                                  {"evaluated/part/z.tar.gz", "training data"},
                                                                  {"trained.safetensors", "starts from"},
                                                                  {"kept/step-8/stage0.safetensors", "checkpoints"},
                                                                  {"kept/step-9", "checkpoints"},
                                                                  {"kept/graphpipe-checkpoints.txt", "checkpoints"},
                                                                  {"flags.toml", "--config"},
                                                                  {"rates.txt", "--lr-file"}};
  for (const char* flag : {"--save", "--save-ema", "--save-gradients", "--save-outputs", "--save-eval-outputs",
                           "--trace", "--write-config"}) {
    CAPTURE(flag);
    for (const auto& [name, words] : cases) {
      CAPTURE(name);
      const Answer answer =
          ask({"run", folder.path(), "--data", folder / "data", "--eval-data", folder / "evaluated", "--weights",
               folder / "trained.safetensors", "--checkpoint", folder / "kept", "--config", folder / "flags.toml",
               "--lr-file", folder / "rates.txt", flag, folder / name});
      CAPTURE(answer.err);
      CHECK(answer.code == 2);
      CHECK(mentions(answer.err, words));
    }
  }
  // Their endings say what is written.
  fs::create_symlink(folder / "plan.json", folder / "rows.csv");
  for (const char* flag : {"--log", "--metrics"})
    CHECK(mentions(ask({"run", folder.path(), flag, folder / "rows.csv"}).err, "this file is the folder's plan"));
  CHECK(bytes_at(folder / "data/x.npy") == "kept");
  CHECK(bytes_at(folder / "plan.json") == "kept");
  CHECK(bytes_at(folder / "elsewhere") == "kept");
}

TEST_CASE("a sweep leaves files of somebody else's alone") {
  for (const char* name : {"table.csv", "table.json", "plot.svg", "cells.jsonl"}) {
    CAPTURE(name);
    const OutputsFolder folder;
    folder.write("sweep.toml", text("[flags]\nmodel = \"", GRAPHPIPE_SOURCE_DIR,
                                    "/tests/data/models/dlrm/model.onnx\"\n[axes]\ndevices = [1]\n"));
    folder.write(text("results/", name), "kept");
    const Answer answer = ask({"sweep", folder / "sweep.toml", "-o", folder / "results"});
    CAPTURE(answer.err);
    CHECK(answer.code == 2);
    CHECK(mentions(answer.err, "not written by a sweep"));
    CHECK(bytes_at(folder / text("results/", name)) == "kept");
  }
}

TEST_CASE("a sweep does not write its results over what it reads") {
  const OutputsFolder folder;
  folder.write("results/cells.jsonl", "");
  fs::copy_file(GRAPHPIPE_SOURCE_DIR "/tests/data/models/dlrm/model.onnx", folder / "results/table.csv");
  const std::string model = bytes_at(folder / "results/table.csv");
  folder.write("sweep.toml", text("[flags]\nmodel = \"", folder / "results/table.csv", "\"\n[axes]\ndevices = [1]\n"));
  const Answer answer = ask({"sweep", folder / "sweep.toml", "-o", folder / "results"});
  CAPTURE(answer.err);
  CHECK(answer.code == 2);
  CHECK(mentions(answer.err, "its table.csv is read by the same command"));
  CHECK(bytes_at(folder / "results/table.csv") == model);
}
