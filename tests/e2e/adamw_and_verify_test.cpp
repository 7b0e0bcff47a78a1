// AdamW against PyTorch's losses, and the verb that checks a folder against one process.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "driver/launch/digest.h"
#include "tests/e2e/pipeline_run.h"
#include "tests/support/case_count.h"

using namespace graphpipe::tests;

namespace {

std::string content_of(const std::string& path) {
  std::ostringstream content;
  content << std::ifstream(path, std::ios::binary).rdbuf();
  return content.str();
}
void write(const std::string& path, const std::string& content) { std::ofstream(path, std::ios::binary) << content; }

// Replaces part of a generated file, and the file's line in the manifest.
void edit_generated(const std::string& folder, const std::string& path, const std::string& from,
                    const std::string& to) {
  const std::string old_content = content_of(folder + "/" + path);
  std::string content = old_content, manifest = content_of(folder + "/manifest.txt");
  const size_t at = content.find(from);
  REQUIRE(at != std::string::npos);
  content.replace(at, from.size(), to);
  const auto line = [&](const std::string& text) {
    return "file " + graphpipe::driver::sha256_of_text(text) + " " + std::to_string(text.size()) + " " + path + "\n";
  };
  const size_t listed = manifest.find(line(old_content));
  REQUIRE(listed != std::string::npos);
  manifest.replace(listed, line(old_content).size(), line(content));
  write(folder + "/" + path, content);
  write(folder + "/manifest.txt", manifest);
}

struct GradientLine {
  std::string path, operands;  // "a.gradients[3], v12" of the call that adds, in a file of the folder
};

// Where the folder adds to a parameter's gradient.
GradientLine find_gradient(const std::string& folder, const std::string& parameter) {
  for (int stage = 0; std::filesystem::exists(folder + "/stages/stage" + std::to_string(stage)); ++stage) {
    const std::string place = "stages/stage" + std::to_string(stage);
    const std::string table = content_of(folder + "/" + place + "/table.cpp");
    const size_t rows = table.find("kParams[]"), row = table.find("{\"" + parameter + "\", ");
    if (row == std::string::npos) continue;
    const auto index = std::count(table.begin() + static_cast<std::ptrdiff_t>(rows),
                                  table.begin() + static_cast<std::ptrdiff_t>(row), '\n') -
                       1;
    const std::string place_of_sum = "a.gradients[" + std::to_string(index) + "], ";
    for (const auto& file : std::filesystem::directory_iterator(folder + "/" + place)) {
      const std::string content = content_of(file.path());
      const size_t at = content.find(place_of_sum);
      if (at != std::string::npos)
        return {place + "/" + file.path().filename().string(),
                content.substr(at, content.find_first_of(",)", at + place_of_sum.size()) - at)};
    }
  }
  FAIL("no gradient of " << parameter);
  return {};
}

// The largest and the smallest tensor whose gradient is more than noise.
std::vector<std::string> largest_and_smallest(const std::string& gradients) {
  const auto tensors = read_floats(gradients);
  const auto norm = [](const std::vector<float>& values) {
    double sum = 0;
    for (const float value : values) sum += static_cast<double>(value) * value;
    return std::sqrt(sum);
  };
  double top = 0;
  for (const auto& [name, values] : tensors) top = std::max(top, norm(values));
  std::string largest, smallest;
  for (const auto& [name, values] : tensors) {
    if (norm(values) < 1e-3 * top) continue;
    if (largest.empty() || values.size() > tensors.at(largest).size()) largest = name;
    if (smallest.empty() || values.size() < tensors.at(smallest).size()) smallest = name;
  }
  CHECK(tensors.at(largest).size() > 10 * tensors.at(smallest).size());
  return {largest, smallest};
}

// A healthy transformer passes; with one gradient a hundredth too large it fails, by that gradient's name.
void check_sharpness(const std::string& optimizer, const std::vector<std::string>& numbers) {
  Reference reference = read_reference("gpt2_like");
  reference.numbers = numbers;
  const std::string folder = work_folder("sharp_" + optimizer);
  compile(reference, folder, {"--devices", "2", "--stages", "2", "--micro-batch", "2", "--optimizer", optimizer});
  const auto healthy = nlohmann::json::parse(verify(reference, folder));
  CHECK(healthy["passed"] == true);
  CHECK(healthy["gradient_difference"].get<double>() <= 1e-5);
  for (const std::string& parameter : largest_and_smallest(folder + "/verify/pipeline.gradients.safetensors")) {
    CAPTURE(parameter);
    const GradientLine line = find_gradient(folder, parameter);
    const std::string wrong = line.operands + ".mul(1.01)";
    edit_generated(folder, line.path, line.operands, wrong);
    graphpipe_output({"build", folder, "--quiet"});
    const auto report = nlohmann::json::parse(failed_verify(reference, folder));
    CHECK(report["bitwise"] == true);
    CHECK(report["by_tolerance"] == false);
    CHECK(report["worst_gradient"] == parameter);
    CHECK(report["worst_gradient_found"] != report["worst_gradient_expected"]);
    edit_generated(folder, line.path, wrong, line.operands);
  }
}

}  // namespace

TEST_CASE("under SGD verify passes a transformer, and fails it with one wrong gradient, of a large or a small tensor") {
  check_sharpness("sgd", {"--lr", "0.05", "--momentum", "0.9"});
}

TEST_CASE("under AdamW verify passes a transformer whose key biases are noise, and fails it with one wrong gradient") {
  check_sharpness("adamw", {"--lr", "0.01"});
}

TEST_CASE("under Muon verify passes a transformer, and fails it with one wrong gradient") {
  check_sharpness("muon", {"--lr", "0.01"});
}

TEST_CASE("under LAMB verify passes a transformer, and fails it with one wrong gradient" *
          doctest::skip(!all_cases())) {
  check_sharpness("lamb", {"--lr", "0.01"});
}

TEST_CASE("mmt under AdamW has PyTorch's losses") {
  const Reference reference = read_reference("mmt", "adamw");
  const std::string folder = work_folder("mmt_verified");
  compile(reference, folder, {"--devices", "2", "--stages", "2", "--micro-batch", "2", "--optimizer", "adamw"});
  const Trained pipeline = train(reference, folder, false);
  const Trained serial = train(reference, folder, true);
  CHECK(pipeline.losses == serial.losses);
  CHECK(same_bytes(pipeline.weights, serial.weights));
  const double difference = largest_relative(pipeline.losses, reference.losses);
  std::cout << "mmt, AdamW: largest difference of a loss from PyTorch " << difference << "\n";
  CHECK(difference <= kLossTolerance);
  // SGD's losses part from AdamW's after the first update: the comparison above can fail.
  CHECK(largest_relative(pipeline.losses, read_reference("mmt").losses) > 0.01);
}

TEST_CASE("verify passes on a folder as it was compiled") {
  const Reference reference = read_reference("dlrm");
  const auto report = nlohmann::json::parse(verify(reference, three_stage_folder()));
  CHECK(report["passed"] == true);
  CHECK(report["bitwise"] == true);
  CHECK(report["by_tolerance"] == true);
  CHECK(report["loss_difference"].get<double>() <= 1e-5);
  CHECK(report["gradient_difference"].get<double>() <= 1e-4);
  CHECK(report["weight_difference"].get<double>() <= 1e-4);
}

TEST_CASE("verify fails where the weights are not the model's, although both runs of the plan agree") {
  const std::string folder = three_stage_folder(), weights = folder + "/weights.safetensors";
  const std::string manifest = folder + "/manifest.txt";
  const std::string old_weights = content_of(weights), old_manifest = content_of(manifest);
  REQUIRE(old_weights.size() > 4);
  std::string new_weights = old_weights, new_manifest = old_manifest;
  const float changed = 3;
  std::memcpy(new_weights.data() + new_weights.size() - sizeof changed, &changed, sizeof changed);
  const std::string digest = graphpipe::driver::sha256_of_text(old_weights);
  const size_t at = new_manifest.find(digest);
  REQUIRE(at != std::string::npos);
  new_manifest.replace(at, digest.size(), graphpipe::driver::sha256_of_text(new_weights));
  write(weights, new_weights);
  write(manifest, new_manifest);
  const auto report = nlohmann::json::parse(failed_verify(read_reference("dlrm"), folder));
  write(weights, old_weights);
  write(manifest, old_manifest);
  CHECK(report["passed"] == false);
  CHECK(report["bitwise"] == true);
  CHECK(report["by_tolerance"] == false);
  CHECK(report["worst_weight_step"] == 0);
  CHECK(report["worst_weight_found"] == 3);
}

TEST_CASE("a model in bfloat16 trains, and passes verify within what its rounding explains") {
  const std::string folder = work_folder("bf16");
  graphpipe_output({"compile", GRAPHPIPE_SOURCE_DIR "/tests/data/bf16/model.onnx", "--batch", "8", "--micro-batch", "2",
                    "--loss", "mse:y,target", "--devices", "2", "--stages", "2", "-o", folder, "--quiet"});
  const auto report =
      nlohmann::json::parse(graphpipe_output({"verify", folder, "--steps", "5", "--lr", "0.05", "--json", "--quiet"}));
  CHECK(report["bitwise"] == true);
  CHECK(report["by_tolerance"] == true);
  // Float32's tolerance would not do: this is 16-bit arithmetic.
  CHECK(report["gradient_difference"].get<double>() > 1e-4);
  // With a tolerance of less than its rounding the same folder fails.
  graphpipe_output({"verify", folder, "--steps", "5", "--lr", "0.05", "--tolerance", "1e-4", "--json", "--quiet"}, 1);
  const auto trained =
      nlohmann::json::parse(graphpipe_output({"run", folder, "--steps", "40", "--lr", "0.1", "--json", "--quiet"}));
  CHECK(trained["losses"].back().get<double>() < 0.5 * trained["losses"].front().get<double>());
}
