// Evaluation beside a training, of a model with BatchNorm: by its running statistics, which inference takes too.

#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/e2e/pipeline_run.h"

using namespace graphpipe::tests;
using nlohmann::json;

TEST_CASE(
    "the loss of an evaluation is that of inference with the same weights, and the training is the same without") {
  const Reference reference = read_batch_reference("resnet");
  const std::string folder = work_folder("evaluation"), data = reference.folder + "/data";
  const auto run = [&](const std::string& place, std::vector<std::string> flags) {
    std::vector<std::string> words = {"run", place, "--data", data, "--json", "--quiet"};
    words.insert(words.end(), flags.begin(), flags.end());
    return json::parse(graphpipe_output(words));
  };
  compile(reference, folder, {"--devices", "2", "--stages", "2"});
  const std::string alone = folder + ".alone.safetensors", beside = folder + ".beside.safetensors";
  const std::string outputs = folder + ".outputs.safetensors";
  const json without = run(folder, {"--steps", "3", "--lr", "0.05", "--save", alone});
  const json with = run(folder, {"--steps", "3", "--lr", "0.05", "--save", beside, "--eval-data", data, "--eval-every",
                                 "1", "--save-eval-outputs", outputs});
  CHECK(with["losses"] == without["losses"]);
  CHECK(same_bytes(alone, beside));
  CHECK(with["eval_steps"] == json({1, 2, 3}));
  CHECK_FALSE(without.contains("eval_losses"));

  const std::string forwards = work_folder("evaluation_forwards");
  compile(reference, forwards, {"--devices", "1", "--stages", "1", "--policy", "inference"});
  const std::string inferred = forwards + ".outputs.safetensors";
  const json inference = run(forwards, {"--epochs", "1", "--weights", beside, "--save-outputs", inferred});
  double sum = 0;
  for (const json& loss : inference["losses"]) sum += loss.get<double>();
  CHECK(with["eval_losses"][2].get<double>() ==
        doctest::Approx(sum / static_cast<double>(inference["losses"].size())).epsilon(1e-5));
  const auto beside_outputs = read_floats(outputs), inferred_outputs = read_floats(inferred);
  REQUIRE(beside_outputs.size() == inferred_outputs.size());
  for (const auto& [name, values] : inferred_outputs) {
    const std::vector<float>& of_training = beside_outputs.at(name);
    REQUIRE(of_training.size() == values.size());
    for (size_t i = 0; i < values.size(); ++i) CHECK(of_training[i] == doctest::Approx(values[i]).epsilon(1e-4));
  }
  graphpipe_output({"run", folder, "--data", data, "--save-eval-outputs", outputs, "--quiet"}, 2);
  // A plan that trains nothing has nothing to evaluate beside it.
  graphpipe_output({"run", forwards, "--eval-data", data, "--quiet"}, 2);
}

TEST_CASE("an evaluation of a training in bf16 has the loss of one in float32, but for rounding") {
  const Reference reference = read_batch_reference("resnet");
  const std::string data = reference.folder + "/data";
  const auto loss = [&](const std::string& precision) {
    const std::string folder = work_folder("evaluation_" + precision);
    compile(reference, folder, {"--devices", "1", "--stages", "1", "--precision", precision});
    const json run = json::parse(graphpipe_output({"run", folder, "--data", data, "--steps", "2", "--lr", "0.05",
                                                   "--eval-data", data, "--eval-every", "2", "--json", "--quiet"}));
    return run["eval_losses"][0].get<double>();
  };
  const double narrow = loss("bf16"), wide = loss("float32");
  CHECK(narrow != wide);
  CHECK(narrow == doctest::Approx(wide).epsilon(1e-2));
}
