// AdamW against PyTorch's losses, and the verb that checks a folder against one process.

#include <doctest/doctest.h>

#include <cstring>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "driver/launch/digest.h"
#include "tests/e2e/pipeline_run.h"

using namespace graphpipe::tests;

namespace {

std::string content_of(const std::string& path) {
  std::ostringstream content;
  content << std::ifstream(path, std::ios::binary).rdbuf();
  return content.str();
}
void write(const std::string& path, const std::string& content) { std::ofstream(path, std::ios::binary) << content; }

}  // namespace

TEST_CASE("mmt under AdamW has PyTorch's losses") {
  const Reference reference = read_reference("mmt", "adamw");
  const std::string folder = work_folder("mmt_2");
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
  CHECK(report["loss_difference"].get<double>() > 1e-5);
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
  const auto trained =
      nlohmann::json::parse(graphpipe_output({"run", folder, "--steps", "40", "--lr", "0.1", "--json", "--quiet"}));
  CHECK(trained["losses"].back().get<double>() < 0.5 * trained["losses"].front().get<double>());
}
