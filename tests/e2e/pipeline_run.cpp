#include "tests/e2e/pipeline_run.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "driver/launch/process.h"
#include "driver/report/compare_tensors.h"
#include "files/safetensors.h"

namespace graphpipe::tests {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const std::string kSource = GRAPHPIPE_SOURCE_DIR;
const std::string kBuild = GRAPHPIPE_BINARY_DIR;

// Semantics, section 2: 1e-5 relative on losses, 1e-4 on gradients' norms.
constexpr double kTensorTolerance = 1e-4;
// Peak memory may be predicted too high, where blocks of few channels are padded (ops/conv.cpp), but hardly too low.
constexpr double kPeakTolerance = 1.05, kMaxAbovePeak = 1.2;
// Indices that look-ups make positive and counts of scattered means are not priced; in a model of a few KiB they show.
constexpr double kUnpricedBytes = 1024;

// Runs a program and returns its standard output; the test fails where it ends otherwise than expected.
std::string run(const std::vector<std::string>& arguments, int expected = 0) {
  std::string out;
  const auto endings = driver::run_processes({{.arguments = arguments}}, 180,
                                             [&](size_t, std::string_view line) { out += std::string(line) + "\n"; });
  REQUIRE(endings.ok());
  CAPTURE(joined(arguments));
  REQUIRE(endings->front().signal == 0);
  REQUIRE(endings->front().exit_code == expected);
  return out;
}

std::vector<std::string> with_model(const Reference& reference, const std::string& verb,
                                    const std::vector<std::string>& flags) {
  std::vector<std::string> arguments{kBuild + "/bin/graphpipe",
                                     verb,
                                     reference.folder + "/model.onnx",
                                     "--batch",
                                     "8",
                                     "--loss",
                                     reference.loss,
                                     "--quiet"};
  arguments.insert(arguments.end(), reference.flags.begin(), reference.flags.end());
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  return arguments;
}

double relative_norm(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    const double delta = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    difference += delta * delta;
    size += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  // A gradient that is zero but for rounding (a bias before a normalisation) has no direction to compare.
  return std::sqrt(difference) / std::max(std::sqrt(size), 1e-3);
}

}  // namespace

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE_MESSAGE(file.good(), path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<double> losses_of(const std::string& report) {
  return nlohmann::json::parse(report)["losses"].get<std::vector<double>>();
}

std::map<std::string, std::vector<float>> read_floats(const std::string& path) {
  const std::string content = read_text(path);
  const auto index = wire::parse_safetensors(content, static_cast<int64_t>(content.size()));
  REQUIRE(index.ok());
  std::map<std::string, std::vector<float>> tensors;
  for (const files::TensorEntry& entry : index->tensors) {
    if (entry.dtype != ir::DType::kFloat32) continue;
    std::vector<float>& values = tensors[entry.name.raw()];
    values.resize(static_cast<size_t>(entry.length) / sizeof(float));
    std::copy_n(content.data() + entry.offset, entry.length, reinterpret_cast<char*>(values.data()));
  }
  return tensors;
}

std::string graphpipe_output(std::vector<std::string> words, int expected) {
  words.insert(words.begin(), kBuild + "/bin/graphpipe");
  return run(words, expected);
}

namespace {

enum class Together : uint8_t { kBatch, kMicroBatch };

Reference read_folder(const std::string& name, const std::string& folder, const std::string& optimizer,
                      Together together = Together::kMicroBatch) {
  Reference reference{.name = name, .folder = folder};
  const json record = json::parse(read_text(reference.folder + "/reference.json"));
  reference.loss = record["loss"];
  const json& runs = record["optimizers"][optimizer];
  const bool apart = together == Together::kMicroBatch && runs.contains("2");
  const std::string micro_batch = apart ? "2" : "8";
  if (apart)
    reference.flags = {reference.loss.starts_with("contrastive") ? "--contrastive" : "--batchnorm", "micro-batch"};
  reference.losses = runs[micro_batch]["losses"].get<std::vector<double>>();
  reference.tensor_prefix = micro_batch + "/";
  reference.numbers = optimizer == "sgd" ? std::vector<std::string>{"--lr", "0.05", "--momentum", "0.9"}
                                         : std::vector<std::string>{"--lr", "0.01", "--weight-decay", "0.01"};
  if (name == "gpt2_like") reference.tied_weight = "head.weight";
  if (name == "gpt2_labels") reference.tied_weight = "model.lm_head.weight";
  return reference;
}

}  // namespace

Reference read_reference(const std::string& name, const std::string& optimizer) {
  return read_folder(name, kSource + "/tests/data/models/" + name, optimizer);
}

Reference read_batch_reference(const std::string& name) {
  return read_folder(name, kSource + "/tests/data/models/" + name, "sgd", Together::kBatch);
}

Reference read_export(const std::string& name) {
  return read_folder(name, kSource + "/tests/data/exports/" + name, "sgd");
}

std::string work_folder(const std::string& name) { return kBuild + "/e2e/" + name; }

void make_plan(const Reference& reference, const std::string& plan, const std::vector<std::string>& flags) {
  fs::create_directories(fs::path(plan).parent_path());
  std::vector<std::string> arguments = with_model(reference, "plan", flags);
  arguments.insert(arguments.end(), {"-o", plan});
  run(arguments);
}

void compile(const Reference& reference, const std::string& folder, const std::vector<std::string>& flags) {
  fs::create_directories(fs::path(folder).parent_path());
  std::vector<std::string> arguments = with_model(reference, "compile", flags);
  arguments.insert(arguments.end(), {"-o", folder});
  run(arguments);
}

void set_micro_batches(const std::string& plan, const std::vector<int>& sizes) {
  json document = json::parse(read_text(plan));
  REQUIRE(document["stages"].size() == sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) document["stages"][i]["micro_batch"] = sizes[i];
  document.erase("schedule");
  // The schema's name stands first in a file of ours; nlohmann sorts keys, so it is put there again.
  document.erase("schema");
  const std::string body = document.dump();
  std::ofstream(plan) << "{\"schema\": \"graphpipe.plan/1\", " << body.substr(1);
}

Trained train(const Reference& reference, const std::string& folder, bool serial) {
  const std::string stem = folder + (serial ? "/serial" : "/pipeline");
  Trained trained{.weights = stem + ".weights.safetensors", .gradients = stem + ".gradients.safetensors"};
  std::vector<std::string> arguments =
      serial ? std::vector<std::string>{folder + "/build/device", "--serial", "--folder", folder}
             : std::vector<std::string>{kBuild + "/bin/graphpipe", "run", folder, "--quiet"};
  arguments.insert(arguments.end(), {"--data", reference.folder + "/data", "--steps", "5", "--save", trained.weights,
                                     "--save-gradients", trained.gradients, "--json"});
  arguments.insert(arguments.end(), reference.numbers.begin(), reference.numbers.end());
  const json report = json::parse(run(arguments));
  trained.losses = report["losses"].get<std::vector<double>>();
  trained.peak_bytes = report["peak_bytes"].get<std::vector<int64_t>>();
  if (serial) return trained;  // of the same plan
  const std::string simulation = run({kBuild + "/bin/graphpipe", "simulate", folder, "--json", "--quiet"});
  trained.predicted_peaks = json::parse(simulation)["peak_bytes"].get<std::vector<int64_t>>();
  return trained;
}

const std::string& three_stage_folder() {
  static const std::string folder = [] {
    const std::string path = work_folder("dlrm_3");
    compile(read_reference("dlrm"), path, {"--devices", "3", "--stages", "3", "--micro-batch", "2"});
    return path;
  }();
  return folder;
}

namespace {

std::vector<std::string> verify_words(const Reference& reference, const std::string& folder) {
  std::vector<std::string> arguments{kBuild + "/bin/graphpipe",
                                     "verify",
                                     folder,
                                     "--data",
                                     reference.folder + "/data",
                                     "--steps",
                                     "5",
                                     "--json",
                                     "--quiet"};
  arguments.insert(arguments.end(), reference.numbers.begin(), reference.numbers.end());
  return arguments;
}

}  // namespace

std::string verify(const Reference& reference, const std::string& folder) {
  return run(verify_words(reference, folder));
}

std::string failed_verify(const Reference& reference, const std::string& folder) {
  return run(verify_words(reference, folder), 1);
}

bool same_bytes(const std::string& a, const std::string& b) { return read_text(a) == read_text(b); }

double largest_relative(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] - b[i]) / std::abs(b[i]));
  return worst;
}

double largest_tensor_difference(const std::string& path, const Reference& reference, const std::string& kind) {
  const auto mine = read_floats(path);
  const auto recorded = read_floats(reference.folder + "/reference.safetensors");
  const std::string prefix = kind + "/" + reference.tensor_prefix;
  double worst = 0;
  int compared = 0;
  for (const auto& [name, values] : recorded) {
    if (!name.starts_with(prefix)) continue;
    const std::string parameter = name.substr(prefix.size());
    CAPTURE(parameter);
    // PyTorch calls a tied weight by its first name, the exporter by its last.
    const bool is_tied = !reference.tied_weight.empty() && mine.count(parameter) == 0;
    const auto found = mine.find(is_tied ? reference.tied_weight : parameter);
    REQUIRE(found != mine.end());
    REQUIRE(found->second.size() == values.size());
    worst = std::max(worst, relative_norm(found->second, values));
    ++compared;
  }
  REQUIRE(compared > 0);
  return worst;
}

int stages_that_hold(const std::string& folder, const std::string& parameter) {
  int count = 0;
  for (int stage = 0; fs::exists(folder + "/stages/stage" + std::to_string(stage)); ++stage)
    count += read_text(folder + "/stages/stage" + std::to_string(stage) + "/table.cpp").find("\"" + parameter + "\"") !=
             std::string::npos;
  return count;
}

namespace {

bool has_one_micro_batch(const json& plan) {
  return std::ranges::all_of(
      plan["stages"], [&](const json& stage) { return stage["micro_batch"] == plan["stages"][0]["micro_batch"]; });
}

}  // namespace

void check_arenas(const Reference& reference, const std::string& folder) {
  const json planned = json::parse(graphpipe_output({"simulate", folder, "--json"}));
  const json taken = json::parse(run({kBuild + "/bin/graphpipe", "run", folder, "--quiet", "--data",
                                      reference.folder + "/data", "--steps", "12", "--lr", "0.01", "--json"}));
  CHECK(taken["planned_arena_bytes"] == planned["arena_bytes"]);
  if (has_one_micro_batch(planned) && !planned.contains("steady_step"))
    CHECK(taken["arena_bytes"] == planned["arena_bytes"]);
  for (size_t device = 0; device < planned["arena_bytes"].size(); ++device)
    CHECK(taken["arena_bytes"][device].get<double>() <= 1.05 * planned["arena_bytes"][device].get<double>());
}

void check_folder(const Reference& reference, const std::string& folder, const std::string& what) {
  CAPTURE(what);
  const Trained pipeline = train(reference, folder, false);
  const Trained serial = train(reference, folder, true);
  CHECK(pipeline.losses == serial.losses);
  CHECK(same_bytes(pipeline.weights, serial.weights));
  CHECK(same_bytes(pipeline.gradients, serial.gradients));
  const double losses = largest_relative(pipeline.losses, reference.losses);
  const double gradients = largest_tensor_difference(pipeline.gradients, reference, "gradient");
  const double weights = largest_tensor_difference(pipeline.weights, reference, "weight");
  CHECK(losses <= kLossTolerance);
  CHECK(gradients <= kTensorTolerance);
  CHECK(weights <= kTensorTolerance);
  std::cout << what << ": largest difference from PyTorch: losses " << losses << ", gradients " << gradients
            << ", weights " << weights << "; peak bytes predicted/measured";
  for (size_t i = 0; i < pipeline.peak_bytes.size(); ++i) {
    std::cout << " " << pipeline.predicted_peaks.at(i) << "/" << pipeline.peak_bytes[i];
    CHECK(static_cast<double>(pipeline.peak_bytes[i]) <=
          kPeakTolerance * static_cast<double>(pipeline.predicted_peaks[i]) + kUnpricedBytes);
    CHECK(static_cast<double>(pipeline.predicted_peaks[i]) <=
          kMaxAbovePeak * static_cast<double>(pipeline.peak_bytes[i]) + kUnpricedBytes);
  }
  std::cout << "\n";
}

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + word;
  return out;
}

}  // namespace graphpipe::tests
