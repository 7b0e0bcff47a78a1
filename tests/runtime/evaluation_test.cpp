// Evaluation beside a training: its losses are those of the data and the weights, and the training is the same without.

#include "runtime/training/evaluation.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "tests/runtime/chain_plan.h"
#include "tests/runtime/run_programs.h"
#include "tests/runtime/two_stage_plan.h"

using namespace graphpipe::runtime;
using namespace graphpipe::runtime::test;

namespace {

struct Told {
  std::vector<double> losses, eval_losses, eval_steps;
  std::string weights, gradients, errors;
};

Told told_by(const RunEnd& end, const std::string& folder) {
  CAPTURE(end.errors);
  REQUIRE(end.exit_code == 0);
  return {numbers_of(end.output, "losses"), numbers_of(end.output, "eval_losses"), numbers_of(end.output, "eval_steps"),
          read_file(folder + "/saved"),     read_file(folder + "/gradients"),      end.errors};
}

std::vector<std::string> words_of(const std::string& folder, std::vector<std::string> more) {
  std::vector<std::string> words = {"--data", folder, "--steps", "5", "--lr", "0.1", "--momentum", "0.9", "--json"};
  words.insert(words.end(), {"--save", folder + "/saved", "--save-gradients", folder + "/gradients"});
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

template <typename Plan>
Told serial(const Plan& plan, const std::string& folder, const std::vector<std::string>& more) {
  return told_by(run_serial_process(plan.programs(), folder, words_of(folder, more)), folder);
}

template <typename Plan>
Told distributed(const Plan& plan, const std::string& folder, const std::vector<std::string>& more) {
  return told_by(run_all(plan.programs(), folder, words_of(folder, more)), folder);
}

// Trains with and without evaluation on `eval`; returns the losses of it.
template <typename Plan>
std::vector<double> check_evaluation(const Plan& plan, const std::string& folder, const std::string& eval) {
  const std::vector<std::string> flags = {"--eval-data", eval, "--eval-every", "2"};
  const Told alone = distributed(plan, folder, {}), beside = distributed(plan, folder, flags);
  CHECK(alone.eval_losses.empty());
  CHECK(beside.losses == alone.losses);
  CHECK(beside.weights == alone.weights);
  CHECK(beside.gradients == alone.gradients);
  CHECK(beside.eval_steps == std::vector<double>{2, 4, 5});
  const Told interpreted = serial(plan, folder, flags);
  CHECK(interpreted.eval_losses == beside.eval_losses);
  CHECK(interpreted.weights == alone.weights);
  return beside.eval_losses;
}

// The mean loss of 16 samples with the weights of a file: 0 to 11 as one batch, and the other four. The first step of a
// run has the loss before any update.
double loss_of_16(const std::string& eval, const std::string& weights) {
  const ChainPlan flush({.stages = 3, .versions = Versions::kFlush});
  const RunEnd once = run_serial_process(
      flush.programs(), eval,
      {"--data", eval, "--weights", weights, "--steps", "2", "--lr", "0", "--last-batch", "train", "--json"});
  CAPTURE(once.errors);
  REQUIRE(once.exit_code == 0);
  const std::vector<double> parts = numbers_of(once.output, "losses");
  return (12 * parts.at(0) + 4 * parts.at(1)) / 16;
}

}  // namespace

TEST_CASE("an evaluation in which no label counts says so, and nothing of the learning rate") {
  graphpipe::wire::RunResult result;
  result.eval_steps = {2};
  result.eval_losses = {std::numeric_limits<double>::quiet_NaN()};
  REQUIRE(evaluation_problem(result));
  CHECK(evaluation_problem(result)->hint.find("learning rate") != std::string::npos);
  result.eval_counts_nothing = true;
  REQUIRE(evaluation_problem(result));
  CHECK(evaluation_problem(result)->message.find("none of their labels counts") != std::string::npos);
  CHECK(evaluation_problem(result)->hint.find("learning rate") == std::string::npos);
}

TEST_CASE("evaluation changes no bit of a training, and its loss is that of all samples together") {
  const std::string folder = make_folder(false, 19), eval = make_folder(false, 13);
  const std::vector<PlanShape> shapes = {{},
                                         {.batch = 7, .micro_batch = {3, 2}},
                                         {.micro_batch = {4, 2}, .replicas = {3, 1}},
                                         {.micro_batch = {4, 8}, .replicas = {2, 2}, .recompute = true},
                                         {.replicas = {2, 1}, .mode = ReplicaMode::kRoundRobin},
                                         {.micro_batch = {4, 2}, .batch_last = true, .states_memory = true},
                                         {.one_device = true}};
  for (size_t i = 0; i < shapes.size(); ++i) {
    CAPTURE(i);
    const std::vector<double> losses = check_evaluation(TwoStagePlan(shapes[i]), folder, eval);
    // One batch of all 13 samples, with the weights that the training has saved.
    const TwoStagePlan whole({.batch = 13, .micro_batch = {13, 13}});
    const RunEnd once = run_serial_process(whole.programs(), folder,
                                           {"--data", eval, "--weights", folder + "/saved", "--steps", "1", "--json"});
    REQUIRE(once.exit_code == 0);
    CHECK(losses.back() == doctest::Approx(numbers_of(once.output, "losses").at(0)).epsilon(1e-6));
    CHECK(losses.front() != losses.back());
  }
  for (const std::string& path : {folder, eval}) std::filesystem::remove_all(path);
}

// docs/schedules.md, section 3: it drains where an evaluation is due, as for a checkpoint.
TEST_CASE("where versions flow, an evaluation sees the weights of all samples before it") {
  for (const ChainShape& shape :
       {ChainShape{.micro_batches = 12, .batches = 3},
        ChainShape{.micro_batches = 12, .batches = 3, .versions = Versions::kTwoBuffers, .per_update = 4}}) {
    const ChainPlan plan(shape);
    const std::string folder = make_chain_folder(3, 24), eval = make_chain_folder(3, 16);
    const std::vector<std::string> flags = {"--eval-data", eval, "--eval-every", "2"};
    const Told evaluated = distributed(plan, folder, flags);
    CHECK(evaluated.eval_steps == std::vector<double>{2, 4, 5});
    CHECK(evaluated.eval_losses.back() == doctest::Approx(loss_of_16(eval, folder + "/saved")).epsilon(1e-6));
    const Told interpreted = serial(plan, folder, flags);
    CHECK(interpreted.losses == evaluated.losses);
    CHECK(interpreted.eval_losses == evaluated.eval_losses);
    CHECK(interpreted.weights == evaluated.weights);
    const Told kept = distributed(plan, folder, {"--checkpoint", folder + "/kept", "--checkpoint-every", "2"});
    CHECK(kept.losses == evaluated.losses);
    CHECK(kept.weights == evaluated.weights);
    CHECK(distributed(plan, folder, {}).weights != evaluated.weights);  // it flows over the second step
    std::vector<std::string> two = words_of(folder, {});
    two[3] = "2";
    told_by(run_serial_process(plan.programs(), folder, two), folder);
    CHECK(evaluated.eval_losses.front() == doctest::Approx(loss_of_16(eval, folder + "/saved")).epsilon(1e-6));
    for (const std::string& path : {folder, eval}) std::filesystem::remove_all(path);
  }
}

TEST_CASE("evaluation takes the newest weights where a step makes several versions") {
  // Batches of 12 samples.
  for (const ChainShape& shape : {ChainShape{}, ChainShape{.versions = Versions::kTwoBuffers, .per_update = 3}}) {
    const std::string folder = make_chain_folder(3, 24), eval = make_chain_folder(3, 16);
    const ChainPlan plan(shape);
    const std::vector<double> losses = check_evaluation(plan, folder, eval);
    CHECK(losses.back() == doctest::Approx(loss_of_16(eval, folder + "/saved")).epsilon(1e-6));
    for (const std::string& path : {folder, eval}) std::filesystem::remove_all(path);
  }
}

TEST_CASE("data to evaluate on are checked as those to train on are, and --eval-every needs them") {
  const std::string folder = make_folder(false, 19), eval = make_folder(false, 13);
  const TwoStagePlan plan({});
  std::filesystem::remove(eval + "/t.npy");
  const RunEnd missing =
      run_serial_process(plan.programs(), folder, {"--data", folder, "--eval-data", eval, "--steps", "1"});
  CHECK(missing.exit_code == 3);
  CHECK(missing.errors.find("'t.npy': the data folder has no such file") != std::string::npos);
  const RunEnd nothing = run_serial_process(plan.programs(), folder, {"--eval-every", "2"});
  CHECK(nothing.exit_code == 2);
  for (const std::string& path : {folder, eval}) std::filesystem::remove_all(path);
}
