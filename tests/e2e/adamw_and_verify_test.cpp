// AdamW against PyTorch's losses, and the verb that checks a folder against one process.

#include <doctest/doctest.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/e2e/pipeline_run.h"

using namespace graphpipe::tests;

namespace {

constexpr double kLossTolerance = 1e-5;  // semantics, section 2

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
