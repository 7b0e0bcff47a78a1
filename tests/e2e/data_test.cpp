// Data that do not fit, weights and flags that make no sense: refused before the first process starts, once.

#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "driver/launch/process.h"
#include "tests/e2e/background_run.h"
#include "tests/e2e/pipeline_run.h"

using namespace graphpipe;
using namespace graphpipe::tests;

namespace fs = std::filesystem;

namespace {

struct Answered {
  int code = 0;
  std::string output;  // of both streams
  size_t count(const std::string& part) const {
    size_t found = 0;
    for (size_t at = output.find(part); at != std::string::npos; at = output.find(part, at + 1)) ++found;
    return found;
  }
  bool has(const std::string& part) const { return count(part) > 0; }
};

Answered run_words(std::vector<std::string> words, const std::vector<std::string>& environment = {}) {
  const auto finished = driver::run_and_collect({.arguments = std::move(words), .environment = environment});
  REQUIRE(finished.ok());
  return {finished->ending.exit_code, finished->output};
}

Answered graphpipe_says(std::vector<std::string> words) {
  words.insert(words.begin(), GRAPHPIPE_BINARY_DIR "/bin/graphpipe");
  return run_words(std::move(words));
}

// A model's data in a folder of the test's own.
struct DataFolder {
  explicit DataFolder(const std::string& name, const Reference& reference = read_reference("dlrm"))
      : path(work_folder("data_" + name)) {
    fs::remove_all(path);
    fs::create_directories(path);
    for (const auto& file : fs::directory_iterator(reference.folder + "/data")) fs::copy(file, path);
  }
  std::string file(const std::string& name) const { return path + "/" + name; }
  /// The rows [first, last) of a file's 16, as a file.
  static std::string rows(const std::string& content, int first, int last) {
    const size_t shape = content.find("'shape': (16");
    REQUIRE(shape != std::string::npos);
    const size_t header = 10 + static_cast<unsigned char>(content[8]) + 256 * static_cast<unsigned char>(content[9]);
    const size_t row = (content.size() - header) / 16;
    std::string out = content.substr(0, header);
    std::string count = std::to_string(last - first);
    if (count.size() < 2) count.insert(0, " ");
    out.replace(shape + 10, 2, count);
    return out + content.substr(header + static_cast<size_t>(first) * row, static_cast<size_t>(last - first) * row);
  }
  /// Cuts the ends of all files off.
  void keep_rows(int count) const {
    for (const auto& file : fs::directory_iterator(path)) {
      const std::string content = read_text(file.path());
      std::ofstream(file.path(), std::ios::binary) << rows(content, 0, count);
    }
  }
  /// Changes an eight-byte id, counted from the file's end: rows of one id each.
  void set_id(const std::string& name, int64_t from_end, int64_t id) const {
    std::fstream out(file(name), std::ios::binary | std::ios::in | std::ios::out);
    out.seekp(static_cast<std::streamoff>(fs::file_size(file(name))) - 8 * from_end);
    out.write(reinterpret_cast<const char*>(&id), sizeof id);
  }
  std::string path;
};

void write_npy(const std::string& path, const std::string& descr, const std::string& shape, size_t bytes) {
  std::string header = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + "}\n";
  const char start[] = {'\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0, static_cast<char>(header.size()), 0};
  std::ofstream(path, std::ios::binary) << std::string(start, sizeof start) << header << std::string(bytes, '\0');
}

}  // namespace

TEST_CASE("files of different numbers of samples are refused before any process starts") {
  const DataFolder data("counts");
  write_npy(data.file("click.npy"), "<f4", "(12,)", 48);
  for (const std::string verb : {"run", "verify"}) {
    const Answered end = graphpipe_says({verb, three_stage_folder(), "--data", data.path, "--steps", "2"});
    CAPTURE(end.output);
    CHECK(end.code == 3);
    CHECK(end.has("different numbers of samples"));
    CHECK(end.has("'click.npy' 12"));
    CHECK(end.count("error[") == 1);
    CHECK_FALSE(end.has("step 1"));
  }
}

TEST_CASE("everything that is wrong with the data is told at once, each once") {
  const DataFolder data("all");
  fs::remove(data.file("click.npy"));
  write_npy(data.file("features.npy"), "<f4", "(16, 99)", 16 * 99 * 4);
  data.set_id("user.npy", 1, 1000000);
  const Answered end = graphpipe_says({"run", three_stage_folder(), "--data", data.path, "--steps", "2"});
  CAPTURE(end.output);
  CHECK(end.code == 3);
  CHECK(end.count("error[bad-data]") == 3);
  CHECK(end.has("'click.npy': the data folder has no such file"));
  CHECK(end.has("'features.npy': it holds float32[16,99]; the model takes float32[1,"));
  CHECK(end.has("'user.npy': row "));
  CHECK(end.has(" is 1000000; the model takes from -"));
  CHECK_FALSE(end.has("frame #"));
}

TEST_CASE("a sample whose mask picks another number of places than masked_scatter has rows ends the run with both") {
  const Reference reference = read_export("picked");
  const std::string folder = work_folder("picked_places");
  compile(reference, folder, {"--devices", "1", "--micro-batch", "4"});
  const DataFolder data("places", reference);
  // The last word of the last sample, which was no picture's.
  data.set_id("words.npy", 1, 9);
  const Answered end = graphpipe_says({"run", folder, "--data", data.path, "--steps", "2"});
  CAPTURE(end.output);
  CHECK(end.code == 3);
  CHECK(end.has("masked_scatter: the mask picks 24 elements in sample 3 of the micro-batch, and its source has 16"));
}

TEST_CASE("ranks that others start refuse data too, without frames of a stack") {
  const DataFolder data("ranks");
  data.set_id("item.npy", 2, -1000000);
  const std::string folder = three_stage_folder();
  const Answered serial = run_words({folder + "/build/device", "--serial", "--data", data.path, "--steps", "2"});
  CAPTURE(serial.output);
  CHECK(serial.code == 3);
  CHECK(serial.has("'item.npy': row "));
  CHECK(serial.count("error[") == 1);
  // Rank 0 looks before the others are there.
  const Answered rank = run_words({folder + "/build/device", "--data", data.path, "--steps", "2"},
                                  {"RANK=0", "WORLD_SIZE=3", "LOCAL_RANK=0", "MASTER_ADDR=127.0.0.1",
                                   "MASTER_PORT=29713", "GRAPHPIPE_SECRET=a secret of thirty-two characters, or more"});
  CAPTURE(rank.output);
  CHECK(rank.code == 3);
  CHECK(rank.has("'item.npy': row "));
}

TEST_CASE("a step that reaches the end of the data within it goes on at their start, and a note says so") {
  const DataFolder data("wrap");
  const Answered whole = graphpipe_says({"run", three_stage_folder(), "--data", data.path, "--steps", "3"});
  CAPTURE(whole.output);
  CHECK(whole.code == 0);
  CHECK_FALSE(whole.has("note["));  // 16 samples, batches of 8
  data.keep_rows(12);
  const Answered cut = graphpipe_says({"run", three_stage_folder(), "--data", data.path, "--steps", "3"});
  CAPTURE(cut.output);
  CHECK(cut.code == 0);
  CHECK(cut.count("12 samples, which the batch of 8 does not divide") == 1);
}

TEST_CASE("shuffled epochs whose rest is trained alone are equal to one process's") {
  const DataFolder data("epochs");
  data.keep_rows(12);
  const std::string folder = three_stage_folder();
  const auto says = [&](const std::string& verb, std::vector<std::string> flags) {
    std::vector<std::string> words{verb, folder, "--data", data.path, "--epochs", "2", "--quiet", "--json"};
    words.insert(words.end(), flags.begin(), flags.end());
    return graphpipe_output(words);
  };
  CHECK(says("verify", {"--shuffle", "--seed", "9", "--last-batch", "train"}).find("\"passed\": true") !=
        std::string::npos);
  const std::vector<double> shuffled = losses_of(says("run", {"--shuffle", "--seed", "9", "--last-batch", "train"}));
  CHECK(shuffled.size() == 4);
  CHECK(losses_of(says("run", {"--shuffle", "--seed", "9", "--last-batch", "train"})) == shuffled);
  CHECK(losses_of(says("run", {"--shuffle", "--seed", "8", "--last-batch", "train"})) != shuffled);
  CHECK(losses_of(says("run", {"--last-batch", "pad"})).size() == 4);
  CHECK(losses_of(says("run", {"--last-batch", "drop"})).size() == 2);
  CHECK(losses_of(says("run", {})).size() == 3);
  CHECK(graphpipe_says({"run", folder, "--data", data.path, "--epochs", "2", "--steps", "1"}).code == 2);
  const Answered synthetic = graphpipe_says({"run", folder, "--epochs", "2", "--shuffle"});
  CHECK(synthetic.code == 2);
  CHECK(synthetic.count("it is about data in files, and the run reads none") == 2);
}

TEST_CASE("data that are cut short while a run reads them end it, and it says so") {
  const DataFolder data("cut");
  BackgroundRun run({GRAPHPIPE_BINARY_DIR "/bin/graphpipe", "run", three_stage_folder(), "--data", data.path, "--steps",
                     "1000000000", "--lr", "1e-12"},
                    work_folder("data_talk"));
  REQUIRE(run.says("step 3 of ", 60));
  fs::resize_file(data.file("features.npy"), 0);
  CHECK(run.wait(30) == 6);
  CAPTURE(run.talk());
  CHECK(run.talk().find("a file that it was reading was cut short") != std::string::npos);
}

TEST_CASE("parts of an input are trained on as the whole") {
  const DataFolder data("parts");
  const auto losses = [&] {
    return losses_of(graphpipe_output({"run", three_stage_folder(), "--data", data.path, "--epochs", "1", "--shuffle",
                                       "--seed", "2", "--quiet", "--json"}));
  };
  const std::vector<double> whole = losses();
  for (const std::string name : {"features", "user"}) {
    const std::string content = read_text(data.file(name + ".npy"));
    fs::remove(data.file(name + ".npy"));
    if (name == "user") fs::create_directory(data.file(name));
    const std::string stem = data.file(name) + (name == "user" ? "/part-" : ".");
    std::ofstream(stem + "0.npy", std::ios::binary) << DataFolder::rows(content, 0, 5);
    std::ofstream(stem + "1.npy", std::ios::binary) << DataFolder::rows(content, 5, 16);
  }
  CHECK(losses() == whole);
  fs::remove(data.file("features.0.npy"));
  const Answered end = graphpipe_says({"run", three_stage_folder(), "--data", data.path});
  CHECK(end.code == 3);
  CHECK(
      end.has("'features.1.npy': the parts of 'features' are numbered from 0 without a gap, and number 0 is missing"));
}

TEST_CASE("smaller samples filled up by --pad train as data that were filled up by hand") {
  const DataFolder data("padded");
  const std::string content = read_text(data.file("features.npy"));
  const size_t header = 10 + static_cast<unsigned char>(content[8]) + 256 * static_cast<unsigned char>(content[9]);
  const size_t width = (content.size() - header) / 16 / sizeof(float);
  const auto write_columns = [&](size_t kept, size_t filled) {
    write_npy(data.file("features.npy"), "<f4", text("(16, ", kept + filled, ")"), 0);
    std::ofstream file(data.file("features.npy"), std::ios::binary | std::ios::app);
    for (size_t row = 0; row < 16; ++row) {
      file.write(content.data() + header + row * width * sizeof(float),
                 static_cast<std::streamsize>(kept * sizeof(float)));
      for (size_t i = 0; i < filled; ++i) {
        const float number = 0.25F;
        file.write(reinterpret_cast<const char*>(&number), sizeof number);
      }
    }
  };
  const std::vector<std::string> run{"run", three_stage_folder(), "--data",  data.path, "--epochs",
                                     "2",   "--shuffle",          "--quiet", "--json"};
  write_columns(width - 2, 2);
  const std::vector<double> by_hand = losses_of(graphpipe_output(run));
  write_columns(width - 2, 0);
  std::vector<std::string> padded = run;
  padded.insert(padded.end(), {"--pad", "features=0.25"});
  CHECK(losses_of(graphpipe_output(padded)) == by_hand);
  const Answered refused = graphpipe_says(run);
  CHECK(refused.code == 3);
  CHECK(refused.has("--pad NAME=NUMBER"));
  padded.back() = "feature=0";
  CHECK(graphpipe_says(padded).code == 2);
  CHECK(graphpipe_says({"run", three_stage_folder(), "--pad", "features=0"}).code == 2);
}

TEST_CASE("a folder in place of a file of weights is told from one that cannot be read") {
  const std::string folder = three_stage_folder();
  const Answered end = graphpipe_says({"run", folder, "--steps", "1", "--weights", folder});
  CHECK(end.code == 3);
  CHECK(end.has("the weights are to be a file, and this is a folder; name what --save wrote"));
}

TEST_CASE("weights that are not finite are refused by name before any process starts") {
  const std::string folder = three_stage_folder(), own = work_folder("data_weights.safetensors");
  REQUIRE(graphpipe_says({"run", folder, "--steps", "1", "--save", own}).code == 0);
  std::string content = read_text(own);
  const uint32_t nan = 0x7fc00000;
  std::memcpy(content.data() + content.size() - 4, &nan, 4);
  std::ofstream(own, std::ios::binary) << content;
  const Answered end = graphpipe_says({"run", folder, "--steps", "1", "--weights", own});
  CAPTURE(end.output);
  CHECK(end.code == 3);
  CHECK(end.count("error[bad-data]") == 1);
  CHECK(end.has("is not a number (NaN) in the weights of"));
  CHECK_FALSE(end.has("step 1 of"));
}

TEST_CASE("a model whose weights are not finite is linted and compiled to the same error") {
  const Reference reference = read_reference("dlrm");
  const std::string folder = work_folder("data_nan_model"), model = folder + "/model.onnx";
  fs::remove_all(folder);
  fs::create_directories(folder);
  std::string content = read_text(reference.folder + "/model.onnx");
  const std::map<std::string, std::vector<float>> weights = read_floats(three_stage_folder() + "/weights.safetensors");
  const std::vector<float>& table = weights.begin()->second;
  const size_t at = content.find(std::string(reinterpret_cast<const char*>(table.data()), 16));
  REQUIRE(at != std::string::npos);
  const uint32_t infinity = 0xff800000;
  std::memcpy(content.data() + at + 8, &infinity, 4);
  std::ofstream(model, std::ios::binary) << content;
  const Answered linted = graphpipe_says({"lint", model, "--loss", reference.loss});
  const Answered compiled = graphpipe_says({"compile", model, "--loss", reference.loss, "-o", folder + "/out"});
  for (const Answered& end : {linted, compiled}) {
    CAPTURE(end.output);
    CHECK(end.code == 3);
    CHECK(end.has("'" + weights.begin()->first + "': element ["));
    CHECK(end.has("is infinite"));
  }
  CHECK_FALSE(fs::exists(folder + "/out/manifest.txt"));
}

TEST_CASE("a loss that is not finite ends the run with code 1 and one error") {
  const Answered end = graphpipe_says({"run", three_stage_folder(), "--data", read_reference("dlrm").folder + "/data",
                                       "--steps", "50", "--lr", "1e18"});
  CAPTURE(end.output);
  CHECK(end.code == 1);
  CHECK(end.count("error[") == 1);
  CHECK(end.has("error[check-failed] the loss of step "));
  CHECK(end.has("step 1 of 50 loss "));
}

TEST_CASE("a loss is printed once, in a line of its step, while the run goes on, into a file too") {
  BackgroundRun run({GRAPHPIPE_BINARY_DIR "/bin/graphpipe", "run", three_stage_folder(), "--steps", "1000000000"},
                    work_folder("data_talk"));
  REQUIRE(run.says("step 3 of 1000000000 loss ", 60));
  const std::string talk = run.talk();
  CHECK(talk.find("step 0") == std::string::npos);
  CHECK(talk.find("step 2 of ", talk.find("step 2 of ") + 1) == std::string::npos);
}

TEST_CASE("flags that a folder has no use for are refused, all at once") {
  const std::string folder = three_stage_folder();  // SGD
  const Answered end = graphpipe_says({"run", folder, "--betas", "0.9,0.99", "--eps", "1e-6", "--data",
                                       read_reference("dlrm").folder + "/data", "--seed", "3"});
  CAPTURE(end.output);
  CHECK(end.code == 2);
  CHECK(end.has("'--betas': the folder's plan trains with SGD"));
  CHECK(end.has("'--eps': the folder's plan trains with SGD"));
  CHECK(end.has("'--seed': nothing is random"));
  CHECK(end.count("error[usage]") == 3);
}

TEST_CASE("run takes another seed than the plan's for synthetic data") {
  const std::string folder = three_stage_folder();
  const auto losses = [&](std::vector<std::string> flags) {
    std::vector<std::string> words{"run", folder, "--steps", "2", "--json", "--quiet"};
    words.insert(words.end(), flags.begin(), flags.end());
    return losses_of(graphpipe_output(words));
  };
  const std::vector<double> own = losses({});
  CHECK(losses({"--seed", "0"}) == own);  // the plan's
  CHECK(losses({"--seed", "1"}) != own);
}

TEST_CASE("no verb ends well whose result nobody could read") {
  const std::string binary = GRAPHPIPE_BINARY_DIR "/bin/graphpipe", folder = three_stage_folder();
  const std::string model = read_reference("dlrm").folder + "/model.onnx --loss bce:logit,click";
  const std::string schedule = work_folder("data_schedule"), weights = work_folder("data_trained.safetensors");
  const std::string trained = " --weights " + weights + " -o " + work_folder("data_out.safetensors");
  graphpipe_output(
      {"schedule", "--policy", "gpipe", "--ranks", "2", "--micro-batches", "2", "--format", "ir", "-o", schedule});
  graphpipe_output({"run", folder, "--save", weights});
  for (const std::string& words : {std::string("--help"),
                                   std::string("--version"),
                                   std::string("plan --help"),
                                   "inspect " + model.substr(0, model.find(' ')),
                                   "lint " + model,
                                   "plan " + model + " --devices 2",
                                   "compare " + model + " --planners sequential",
                                   "simulate " + folder,
                                   std::string("schedule --policy gpipe --ranks 2 --micro-batches 2"),
                                   "check " + schedule,
                                   "report " + folder + " -o " + work_folder("data_unread.html"),
                                   "export " + folder + trained,
                                   "generate " + folder + " -o " + work_folder("data_unread_too"),
                                   std::string("completion bash"),
                                   std::string("manual"),
                                   "run " + folder,
                                   "run " + folder + " --json",
                                   "verify " + folder,
                                   "build " + folder,
                                   "compile " + model + " --stages 1 -o " + work_folder("data_unread") + " -q"}) {
    CAPTURE(words);
    CHECK(run_words({"sh", "-c", binary + " " + words + " >/dev/full"}).code == 5);
  }
  // A closed pipe: the reader is gone before the first byte, and the signal that says so is ignored.
  const Answered closed =
      run_words({"bash", "-c", "trap '' PIPE; { sleep 0.3; " + binary + " --help; echo code $? >&2; } | true"});
  CAPTURE(closed.output);
  CHECK(closed.has("code 5"));
}
