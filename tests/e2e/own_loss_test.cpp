// Models with their own loss. A language model (transformers' GPT-2, exported with labels): a mean over shifted labels,
// of which another number counts in every sample, and none in two neighbours. Several tasks, of which each counts
// labels of its own. Whatever the micro-batches, it is PyTorch's.

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "tests/e2e/pipeline_run.h"
#include "tests/support/case_count.h"

using namespace graphpipe::tests;

TEST_CASE("a mean over counted labels: the loss of the whole batch, in micro-batches and replicas of unequal counts") {
  const Reference reference = read_export("gpt2_labels");
  const std::string folder = work_folder("gpt2_labels");
  const std::vector<std::vector<std::string>> plans = {
      {"--devices", "2", "--planner", "data-parallel", "--micro-batch", "4"},
      {"--devices", "2", "--stages", "2", "--micro-batch", "2"},
      {"--devices", "3", "--stages", "2", "--micro-batch", "3", "--replicas", "1=2", "--policy", "zb-1p"},
      {"--devices", "2", "--micro-batch", "1", "--policy", "interleaved"}};
  for (const std::vector<std::string>& flags : std::span(plans).last(case_count(2, plans.size()))) {
    compile(reference, folder, flags);
    check_folder(reference, folder, "gpt2_labels, " + joined(flags));
  }
  CHECK(nlohmann::json::parse(verify(reference, folder))["by_tolerance"] == true);
}

TEST_CASE("a sum of means over different labels: each is divided by its own labels of the whole batch") {
  const Reference reference = read_export("tasks");
  const std::string folder = work_folder("tasks");
  const std::vector<std::vector<std::string>> plans = {
      {"--devices", "2", "--stages", "2", "--micro-batch", "2"},
      {"--devices", "3", "--planner", "data-parallel", "--micro-batch", "4"},
      {"--devices", "2", "--micro-batch", "1", "--policy", "interleaved"}};
  for (const std::vector<std::string>& flags : std::span(plans).last(case_count(2, plans.size()))) {
    compile(reference, folder, flags);
    check_folder(reference, folder, "tasks, " + joined(flags));
  }
  CHECK(nlohmann::json::parse(verify(reference, folder))["by_tolerance"] == true);
  compile(reference, folder, {"--devices", "2", "--micro-batch", "1", "--policy", "2bw", "--update", "4"});
  const Trained pipeline = train(reference, folder, false), serial = train(reference, folder, true);
  CHECK(pipeline.losses == serial.losses);
  CHECK(same_bytes(pipeline.weights, serial.weights));
}

TEST_CASE("losses side by side in one tensor: each alone and a row of weights times all, as if they had their own") {
  const Reference reference = read_export("stacked_tasks");
  const std::string folder = work_folder("stacked_tasks");
  const std::vector<std::vector<std::string>> plans = {
      {"--devices", "3", "--planner", "data-parallel", "--micro-batch", "4"},
      {"--devices", "2", "--stages", "2", "--micro-batch", "2"}};
  for (const std::vector<std::string>& flags : std::span(plans).last(case_count(1, plans.size()))) {
    compile(reference, folder, flags);
    check_folder(reference, folder, "stacked_tasks, " + joined(flags));
  }
}

TEST_CASE("a policy that updates several times a step divides by the labels of each update") {
  const Reference reference = read_export("gpt2_labels");
  const std::string folder = work_folder("gpt2_labels_async");
  compile(reference, folder, {"--devices", "2", "--micro-batch", "1", "--policy", "2bw", "--update", "4"});
  const Trained pipeline = train(reference, folder, false), serial = train(reference, folder, true);
  CHECK(pipeline.losses == serial.losses);
  CHECK(same_bytes(pipeline.weights, serial.weights));
  CHECK(pipeline.losses.back() < pipeline.losses.front());
}

TEST_CASE("forwards only, the loss of the model is the one that is reported") {
  const Reference reference = read_export("gpt2_labels");
  const std::string folder = work_folder("gpt2_labels_forward");
  compile(reference, folder, {"--devices", "2", "--stages", "2", "--micro-batch", "2", "--policy", "inference"});
  const auto losses =
      losses_of(graphpipe_output({"run", folder, "--data", reference.folder + "/data", "--steps", "1", "--json"}));
  CHECK(largest_relative(losses, {reference.losses.front()}) <= kLossTolerance);
}
