// Optimizers, groups and schedules from the command line to trained weights, against one process.

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/e2e/pipeline_run.h"

using namespace graphpipe::tests;
using nlohmann::json;

TEST_CASE("Muon trains a transformer with groups, a schedule and updates of two steps, as one process does") {
  Reference reference = read_reference("gpt2_like");
  const std::string folder = work_folder("muon");
  compile(reference, folder, {"--devices", "2", "--stages", "2", "--micro-batch", "2", "--optimizer", "muon"});
  reference.numbers = {"--lr",          "0.01",
                       "--group",       "blocks.0.*:lr=0.02,weight-decay=0.5",
                       "--no-decay",    "norms-and-biases",
                       "--lr-schedule", "cosine:8,0.1",
                       "--warmup",      "2",
                       "--accumulate",  "2",
                       "--clip-value",  "1"};
  const json report = json::parse(verify(reference, folder));
  CHECK(report["bitwise"] == true);
  CHECK(report["by_tolerance"] == true);
  const std::string average = folder + "/average.safetensors", trained = folder + "/trained.safetensors";
  std::vector<std::string> words{"run", folder, "--data", reference.folder + "/data", "--steps", "6", "--ema", "0.5"};
  words.insert(words.end(), {"--save", trained, "--save-ema", average, "--json", "--quiet"});
  words.insert(words.end(), reference.numbers.begin(), reference.numbers.end());
  graphpipe_output(words);
  CHECK(std::filesystem::file_size(average) == std::filesystem::file_size(trained));
  CHECK_FALSE(same_bytes(average, trained));
  // The average is a set of weights: the model starts from it.
  graphpipe_output({"run", folder, "--data", reference.folder + "/data", "--weights", average, "--quiet"});
  graphpipe_output({"run", folder, "--group", "nothing*:lr=1", "--quiet"}, 2);
  graphpipe_output({"run", folder, "--nesterov", "--quiet"}, 2);
}

TEST_CASE("row-wise Adagrad trains tables of dlrm under PipeDream with the interpreter's bits") {
  Reference reference = read_reference("dlrm");
  const std::string folder = work_folder("row_wise");
  compile(reference, folder,
          {"--devices", "3", "--stages", "3", "--micro-batch", "2", "--optimizer", "row-wise-adagrad", "--policy",
           "pipedream"});
  reference.numbers = {"--lr", "0.05", "--group", "tables.*:lr=0.1", "--lr-schedule", "step:2,0.5"};
  CHECK(json::parse(verify(reference, folder))["bitwise"] == true);
  std::string tables;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder + "/stages"))
    if (entry.path().filename() == "table.cpp") tables += read_text(entry.path());
  CHECK(tables.find("tables.0.weight") != std::string::npos);
  CHECK(tables.find(", true}") != std::string::npos);
  // How many samples make an update is part of such a schedule.
  graphpipe_output({"run", folder, "--accumulate", "2", "--steps", "2", "--quiet"}, 2);
}
