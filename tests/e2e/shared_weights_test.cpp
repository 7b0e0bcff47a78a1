// A model whose weights are external data: the compiled folder holds them without a copy, trains and is verified as any
// other, outlives the model and can be copied away. And files of weights that modules share.

#include <doctest/doctest.h>
#include <onnx/onnx_pb.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "driver/launch/process.h"
#include "tests/e2e/pipeline_run.h"
#include "wire/exit_codes.h"

using namespace graphpipe;
using namespace graphpipe::tests;
namespace fs = std::filesystem;

namespace {

constexpr int kUnit = 64;

// Moves what a model file holds of its weights into a data file, as exporters do with large models.
void move_weights_out(const std::string& path, const std::string& data_name) {
  graphpipe_onnx::ModelProto model;
  REQUIRE(model.ParseFromString(read_text(path)));
  std::string data;
  for (graphpipe_onnx::TensorProto& tensor : *model.mutable_graph()->mutable_initializer()) {
    if (tensor.raw_data().size() < kUnit) continue;
    const auto add = [&](const char* key, size_t value) {
      auto& entry = *tensor.add_external_data();
      entry.set_key(key);
      entry.set_value(std::to_string(value));
    };
    auto& location = *tensor.add_external_data();
    location.set_key("location");
    location.set_value(data_name);
    add("offset", data.size());
    add("length", tensor.raw_data().size());
    data += tensor.raw_data();
    data.resize((data.size() + kUnit - 1) / kUnit * kUnit);
    tensor.clear_raw_data();
    tensor.set_data_location(graphpipe_onnx::TensorProto::EXTERNAL);
  }
  REQUIRE(!data.empty());
  fs::remove(path);
  std::ofstream(path, std::ios::binary) << model.SerializeAsString();
  std::ofstream(fs::path(path).parent_path() / data_name, std::ios::binary) << data;
}

std::vector<std::string> run_words(const Reference& reference, const std::string& folder) {
  return {"run", folder, "--data", reference.folder + "/data", "--steps", "2", "--lr", "0.05", "--json"};
}

// All that graphpipe says, warnings too.
std::string told(std::vector<std::string> words) {
  words.insert(words.begin(), GRAPHPIPE_BINARY_DIR "/bin/graphpipe");
  const auto finished = driver::run_and_collect({.arguments = std::move(words)});
  REQUIRE(finished.ok());
  return finished->output;
}

}  // namespace

TEST_CASE("weights of external data are not copied, and train as those of the model's file") {
  Reference reference = read_reference("gpt2_like");
  const std::string place = work_folder("shared_weights"), model = place + "/model", folder = place + "/out";
  fs::remove_all(place);
  fs::create_directories(place);
  fs::copy(reference.folder, model, fs::copy_options::recursive);
  reference.folder = model;
  const std::string data = model + "/model.onnx.data";
  move_weights_out(model + "/model.onnx", "model.onnx.data");

  compile(reference, folder, {"--devices", "2", "--stages", "2", "--micro-batch", "2", "--link-weights"});
  const std::string linked = folder + "/weights/0.bin";
  CHECK(fs::equivalent(linked, data));
  CHECK(fs::file_size(folder + "/weights.safetensors") < fs::file_size(data) / 10);
  check_folder(reference, folder, "gpt2_like, external data");
  verify(reference, folder);
  const std::vector<double> losses = losses_of(graphpipe_output(run_words(reference, folder)));

  // Trained weights go on from there and back into the model.
  const std::string trained = folder + "/pipeline.weights.safetensors";
  std::vector<std::string> again = run_words(reference, folder);
  again.insert(again.end(), {"--weights", trained});
  CHECK(losses_of(graphpipe_output(again)).front() < losses.front());
  graphpipe_output({"export", folder, "--weights", trained, "-o", place + "/trained.safetensors"});
  CHECK(fs::exists(place + "/trained.safetensors"));

  // Elsewhere it is whole: neither the model nor the first folder is needed.
  const std::string copy = place + "/copy", moved = place + "/moved";
  fs::copy(folder, copy, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  CHECK_FALSE(fs::equivalent(copy + "/weights/0.bin", data));
  fs::remove(data);
  fs::remove(model + "/model.onnx");
  CHECK(losses_of(graphpipe_output(run_words(reference, folder))) == losses);
  fs::rename(folder, moved);
  CHECK(losses_of(graphpipe_output(run_words(reference, copy))) == losses);
  CHECK(losses_of(graphpipe_output(run_words(reference, moved))) == losses);

  // A changed byte, and a file that has become shorter.
  {
    std::fstream file(copy + "/weights/0.bin", std::ios::in | std::ios::out | std::ios::binary);
    const int first = file.get();
    file.seekp(0);
    file.put(static_cast<char>(first ^ 1));
  }
  graphpipe_output(run_words(reference, copy), wire::kExitInputRefused);
  fs::resize_file(moved + "/weights/0.bin", fs::file_size(moved + "/weights/0.bin") / 2);
  graphpipe_output(run_words(reference, moved), wire::kExitInputRefused);
}

// Writers of PyTorch keep a shared weight under one of its names, and `export` under each.
TEST_CASE("a file of weights may have a tied weight under any of its names, and not with other numbers under each") {
  const Reference reference = read_reference("gpt2_like");
  const std::string folder = work_folder("tied_names"), rules = folder + ".parameters";
  fs::create_directories(fs::path(rules).parent_path());
  std::ofstream(rules) << "head.weight tie tokens.weight\n";
  compile(reference, folder, {"--devices", "2", "--stages", "2", "--micro-batch", "2", "--parameters", rules});
  const auto words = [&](const std::string& weights) {
    return std::vector<std::string>{"run",       folder,  "--data", reference.folder + "/data",
                                    "--steps",   "2",     "--lr",   "0.05",
                                    "--weights", weights, "--json", "--quiet"};
  };
  const std::string saved = folder + ".saved.safetensors", both = folder + ".both.safetensors",
                    one = folder + ".one.safetensors", other = folder + ".other.safetensors";
  graphpipe_output({"run", folder, "--data", reference.folder + "/data", "--steps", "1", "--lr", "0.05", "--save",
                    saved, "--quiet"});
  graphpipe_output({"export", folder, "--weights", saved, "-o", both});
  const std::vector<double> losses = losses_of(graphpipe_output(words(saved)));
  CHECK(losses_of(graphpipe_output(words(both))) == losses);
  CHECK(told(words(both)).find("not of the model") == std::string::npos);

  std::string text = read_text(both);
  const size_t name = text.find("\"head.weight\"");
  REQUIRE(name != std::string::npos);
  REQUIRE(text.find("\"tokens.weight\"") != std::string::npos);
  std::string renamed = text;
  renamed[name + 1] = 'x';
  std::ofstream(one, std::ios::binary) << renamed;
  CHECK(losses_of(graphpipe_output(words(one))) == losses);
  CHECK(told(words(one)).find("1 tensor is not of the model, and not read; the first is 'xead.weight'") !=
        std::string::npos);
  const std::string again = folder + ".again.safetensors";
  graphpipe_output({"export", folder, "--weights", one, "-o", again});
  CHECK(same_bytes(again, both));

  // The first number of the one, which lies behind a header that begins with its own length.
  uint64_t header = 0;
  std::memcpy(&header, text.data(), sizeof header);
  const std::string offsets = "\"data_offsets\":[";
  text[8 + header + std::stoul(text.substr(text.find(offsets, name) + offsets.size()))] ^= 1;
  std::ofstream(other, std::ios::binary) << text;
  CHECK(graphpipe_output(words(other), 3).find("which are one parameter of this model") != std::string::npos);
}
