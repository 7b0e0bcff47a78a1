// All that a training may ask for at once: shuffled epochs, a cosine schedule, groups, clipping, accumulated steps, a
// moving average and checkpoints; then a kill, a resume, and a plan that changes in the middle.

#include <doctest/doctest.h>
#include <signal.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/e2e/background_run.h"
#include "tests/e2e/pipeline_run.h"

using namespace graphpipe::tests;
using nlohmann::json;

namespace {

namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;

constexpr int kTrainingSteps = 1200;

Arguments training_words(const Reference& reference, const std::string& folder) {
  return {"run",
          folder,
          "--data",
          reference.folder + "/data",
          "--steps",
          std::to_string(kTrainingSteps),
          "--shuffle",
          "--last-batch",
          "drop",
          "--lr",
          "0.003",
          "--weight-decay",
          "0.05",
          "--group",
          "blocks.0.*:lr=0.001",
          "--no-decay",
          "norms-and-biases",
          "--lr-schedule",
          "cosine:1200,0.1",
          "--warmup",
          "20",
          "--clip-norm",
          "0.5",
          "--accumulate",
          "2",
          "--ema",
          "0.99"};
}

Arguments joined_with(Arguments words, const Arguments& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

}  // namespace

TEST_CASE("a training with everything is killed, goes on bit by bit, and goes on under another plan") {
  const Reference reference = read_reference("gpt2_like");
  const std::string place = work_folder("whole_training");
  fs::remove_all(place);
  fs::create_directories(place);
  const std::string folder = place + "/pipeline", other = place + "/replicas", checkpoints = place + "/checkpoints";
  compile(reference, folder, {"--devices", "2", "--stages", "2", "--micro-batch", "2", "--optimizer", "adamw"});
  const Arguments run = training_words(reference, folder);
  const json whole = json::parse(
      graphpipe_output(joined_with(run, {"--json", "--save", place + "/whole.w", "--save-ema", place + "/whole.e"})));
  {
    BackgroundRun killed(joined_with({GRAPHPIPE_BINARY_DIR "/bin/graphpipe"},
                                     joined_with(training_words(reference, folder),
                                                 {"--checkpoint", checkpoints, "--checkpoint-every", "50"})),
                         place + "/talk");
    // Far behind step 50: a checkpoint is written beside the steps, and they take a millisecond each.
    REQUIRE(killed.says("step 600 of", 60));
    const std::vector<pid_t> devices = killed.devices();
    REQUIRE(devices.size() == 2);
    kill(devices[0], SIGKILL);
    CHECK(killed.wait(60) != 0);
  }
  // To go on under another plan from the same step as the first plan does.
  fs::copy(checkpoints, checkpoints + ".other", fs::copy_options::recursive);
  const json rest = json::parse(graphpipe_output(joined_with(
      run, {"--json", "--resume", checkpoints, "--save", place + "/rest.w", "--save-ema", place + "/rest.e"})));
  CHECK(rest["first_step"].get<int>() > 50);
  CHECK(same_bytes(place + "/whole.w", place + "/rest.w"));
  CHECK(same_bytes(place + "/whole.e", place + "/rest.e"));
  compile(reference, other,
          {"--devices", "3", "--stages", "2", "--replicas", "1=2", "--micro-batch", "4", "--optimizer", "adamw",
           "--policy", "gpipe"});
  const std::vector<double> changed = losses_of(
      graphpipe_output(joined_with(training_words(reference, other), {"--json", "--resume", checkpoints + ".other",
                                                                      "--save-ema", place + "/changed.e"})));
  const std::vector<double> same = rest["losses"].get<std::vector<double>>();
  REQUIRE(changed.size() == same.size());
  // Rounding, which training enlarges step by step.
  CHECK(largest_relative({changed.begin(), changed.begin() + 20}, {same.begin(), same.begin() + 20}) < 1e-4);
  CHECK(std::abs(changed.back() - same.back()) < 0.05 * whole["losses"].front().get<double>());

  // Both plans give the model's outputs for the same weights, rows in the order of the data.
  const std::string data = reference.folder + "/data";
  std::vector<std::vector<float>> logits;
  for (const std::string& of_plan : {folder, other}) {
    graphpipe_output({"run", of_plan, "--data", data, "--steps", "1", "--lr", "0", "--weights", place + "/whole.w",
                      "--eval-data", data, "--save-eval-outputs", of_plan + ".outputs", "--quiet"});
    logits.push_back(read_floats(of_plan + ".outputs").at("logits"));
  }
  REQUIRE(logits[0].size() == logits[1].size());
  for (size_t i = 0; i < logits[0].size(); ++i)
    CHECK(std::abs(logits[0][i] - logits[1][i]) <= 1e-4 * (1 + std::abs(logits[0][i])));
}
