// Programs that only run forwards: what they compute from weights that a training has saved, with and without a loss.

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/e2e/background_run.h"
#include "tests/e2e/pipeline_run.h"

using namespace graphpipe::tests;
using nlohmann::json;

namespace {

constexpr size_t kSamples = 16, kBatch = 8;

/// The floats at the end of a .npy file.
std::vector<float> last_floats(const std::string& path, size_t count) {
  const std::string content = read_text(path);
  std::vector<float> floats(count);
  REQUIRE(content.size() > count * sizeof(float));
  std::memcpy(floats.data(), content.data() + content.size() - count * sizeof(float), count * sizeof(float));
  return floats;
}

double cross_entropy(double logit, double click) {
  return std::max(logit, 0.0) - logit * click + std::log1p(std::exp(-std::abs(logit)));
}

json run_json(const std::string& folder, const Reference& reference, std::vector<std::string> flags) {
  std::vector<std::string> words = {"run", folder, "--data", reference.folder + "/data", "--json", "--quiet"};
  words.insert(words.end(), flags.begin(), flags.end());
  return json::parse(graphpipe_output(words));
}

}  // namespace

TEST_CASE("inference takes trained weights, and its outputs are those whose loss training reports") {
  const Reference reference = read_reference("dlrm");
  const std::string trained = three_stage_folder(), folder = work_folder("inference");
  const std::string weights = folder + ".weights.safetensors", outputs = folder + ".outputs.safetensors";
  run_json(trained, reference, {"--steps", "5", "--lr", "0.05", "--save", weights});
  const json next = run_json(trained, reference, {"--steps", "2", "--lr", "0", "--weights", weights});

  compile(reference, folder, {"--devices", "2", "--stages", "2", "--micro-batch", "3", "--policy", "inference"});
  Reference without_numbers = reference;  // of an optimizer
  without_numbers.numbers.clear();
  const json verified = json::parse(verify(without_numbers, folder));
  CHECK(verified["bitwise"] == true);
  CHECK(verified["by_tolerance"] == true);
  CHECK(verified["output_difference"].get<double>() <= 1e-4);
  const json report = run_json(folder, reference, {"--steps", "2", "--weights", weights, "--save-outputs", outputs});
  const std::vector<float> logits = read_floats(outputs).at("logit"),
                           clicks = last_floats(reference.folder + "/data/click.npy", kSamples);
  REQUIRE(logits.size() == kSamples);
  // Without a word about steps every sample is taken once.
  const json all = run_json(folder, reference, {"--weights", weights, "--save-outputs", outputs});
  CHECK(read_floats(outputs).at("logit") == logits);
  CHECK(all["losses"] == report["losses"]);
  for (size_t step = 0; step < kSamples / kBatch; ++step) {
    double sum = 0;
    for (size_t i = step * kBatch; i < (step + 1) * kBatch; ++i) sum += cross_entropy(logits[i], clicks[i]);
    CHECK(report["losses"][step].get<double>() == doctest::Approx(sum / kBatch).epsilon(1e-5));
    CHECK(report["losses"][step].get<double>() == doctest::Approx(next["losses"][step].get<double>()).epsilon(1e-5));
  }

  // Without a loss there is nothing to report but the outputs, and no label is read.
  graphpipe_output({"compile", reference.folder + "/model.onnx", "--policy", "inference", "--devices", "2", "--stages",
                    "2", "--batch", "8", "--micro-batch", "3", "-o", folder, "--quiet"});
  CHECK(
      run_json(folder, reference, {"--steps", "2", "--weights", weights, "--save-outputs", outputs})["losses"].empty());
  CHECK(read_floats(outputs).at("logit") == logits);

  // The training's own stages, other than those above, evaluate to the same.
  const std::string data = reference.folder + "/data", evaluated = folder + ".evaluated.safetensors";
  const std::vector<std::string> evaluate = {
      "--steps", "1", "--lr", "0", "--weights", weights, "--eval-data", data, "--save-eval-outputs", evaluated};
  run_json(trained, reference, evaluate);
  const std::vector<float> beside = read_floats(evaluated).at("logit");
  REQUIRE(beside.size() == kSamples);
  for (size_t i = 0; i < kSamples; ++i) CHECK(beside[i] == doctest::Approx(logits[i]).epsilon(1e-5));
}

TEST_CASE("programs that train do not offer outputs of their steps, and weights of another model are refused") {
  const Reference reference = read_reference("dlrm");
  graphpipe_output({"run", three_stage_folder(), "--data", reference.folder + "/data", "--save-outputs",
                    work_folder("none.safetensors"), "--quiet"},
                   2);
  graphpipe_output({"run", three_stage_folder(), "--data", reference.folder + "/data", "--weights",
                    reference.folder + "/../mmt/reference.safetensors", "--quiet"},
                   3);
}

TEST_CASE("a model whose only output mixes the samples has no file of outputs, and is compared by its loss alone") {
  const Reference reference = read_reference("clip_like");
  const std::string folder = work_folder("inference_mixed"), data = reference.folder + "/data";
  const std::vector<std::string> compiled = {"compile",   reference.folder + "/model.onnx",
                                             "--policy",  "inference",
                                             "--devices", "2",
                                             "--batch",   "8",
                                             "-o",        folder,
                                             "--quiet"};
  graphpipe_output(compiled);
  graphpipe_output({"run", folder, "--data", data, "--steps", "1", "--save-outputs", folder + ".none"}, 2);
  CHECK_FALSE(std::filesystem::exists(folder + ".none"));
  graphpipe_output({"verify", folder, "--data", data, "--steps", "1", "--quiet"}, 1);
  std::vector<std::string> with_loss = compiled;
  with_loss.insert(with_loss.end(), {"--loss", "contrastive:similarity"});
  graphpipe_output(with_loss);
  const json report =
      json::parse(graphpipe_output({"verify", folder, "--data", data, "--steps", "1", "--quiet", "--json"}));
  CHECK(report["passed"] == true);
}

TEST_CASE("outputs that are not finite are written, with a warning that names the first") {
  const Reference reference = read_reference("dlrm");
  const std::string folder = work_folder("inference_not_finite"), data = folder + ".data", talk = folder + ".talk";
  graphpipe_output({"compile", reference.folder + "/model.onnx", "--policy", "inference", "--devices", "1", "--batch",
                    "6", "-o", folder, "--quiet"});
  // The rest of 16 samples makes a step of its own, and no sample is taken twice.
  graphpipe_output(
      {"run", folder, "--data", reference.folder + "/data", "--save-outputs", folder + ".safetensors", "--quiet"});
  CHECK(read_floats(folder + ".safetensors").at("logit").size() == kSamples);
  std::filesystem::remove_all(data);
  std::filesystem::copy(reference.folder + "/data", data);
  const auto warned_of = [&](const std::string& from) {
    BackgroundRun run({GRAPHPIPE_BINARY_DIR "/bin/graphpipe", "run", folder, "--data", from, "--steps", "1",
                       "--save-outputs", folder + ".safetensors"},
                      talk);
    CHECK(run.wait(60) == 0);
    return run.talk().find("the outputs are not all finite: 'logit' element [") != std::string::npos;
  };
  CHECK_FALSE(warned_of(data));
  std::string features = read_text(data + "/features.npy");
  constexpr size_t kHeader = 128;
  for (size_t at = kHeader; at < features.size(); at += sizeof(float)) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    std::memcpy(features.data() + at, &kInfinity, sizeof kInfinity);
  }
  std::ofstream(data + "/features.npy", std::ios::binary) << features;
  CHECK(warned_of(data));
}

TEST_CASE("weights of four bits and small floats with scales by block compute what ONNX's reference evaluator does") {
  const std::string model = GRAPHPIPE_SOURCE_DIR "/tests/data/quantized", folder = work_folder("quantized");
  const std::string outputs = folder + ".outputs.safetensors";
  graphpipe_output({"compile", model + "/model.onnx", "--policy", "inference", "--devices", "2", "--stages", "2",
                    "--batch", "4", "--micro-batch", "2", "-o", folder, "--quiet"});
  graphpipe_output({"run", folder, "--data", model + "/data", "--steps", "2", "--save-outputs", outputs, "--quiet"});
  const std::vector<float> found = read_floats(outputs).at("dy");
  const std::vector<float> expected = last_floats(model + "/y.npy", 8 * 256);
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) CHECK(found[i] == doctest::Approx(expected[i]).epsilon(1e-5).scale(1));
}
