// Data, weights and losses that no training survives: each ends the run with its name and place, once.

#include <ATen/ops/full.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/io/safetensors.h"
#include "tests/runtime/run_programs.h"
#include "tests/runtime/two_stage_plan.h"

using namespace graphpipe::runtime;
using namespace graphpipe::runtime::test;

namespace {

bool mentions(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

size_t errors_in(const std::string& text) {
  size_t count = 0;
  for (size_t at = text.find("error["); at != std::string::npos; at = text.find("error[", at + 1)) ++count;
  return count;
}

// A folder of the two-stage plan with 16 samples, gone at its end.
struct RunFolder {
  RunFolder() : path(make_folder(false, 16)) {}
  ~RunFolder() { std::filesystem::remove_all(path); }
  /// Overwrites a number of x.npy or t.npy, six to a row.
  void set(const std::string& file, int64_t row, int64_t column, float number) const {
    std::fstream out(path + "/" + file, std::ios::binary | std::ios::in | std::ios::out);
    const auto size = static_cast<int64_t>(std::filesystem::file_size(path + "/" + file));
    out.seekp(size - (16 - row) * 24 + column * 4);
    out.write(reinterpret_cast<const char*>(&number), sizeof number);
  }
  /// Overwrites a row by another.
  void copy_row(const std::string& file, int64_t from, int64_t to) const {
    std::fstream both(path + "/" + file, std::ios::binary | std::ios::in | std::ios::out);
    const auto size = static_cast<int64_t>(std::filesystem::file_size(path + "/" + file));
    char row[24];
    both.seekg(size - (16 - from) * 24).read(row, sizeof row);
    both.seekp(size - (16 - to) * 24).write(row, sizeof row);
  }
  std::string path;
};

std::vector<std::string> names_in(const std::string& path) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path)) names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

struct AllEnds {
  std::vector<RunEnd> ends;
  std::string errors;
};

AllEnds run_pipeline(const TwoStagePlan& plan, const std::string& folder, std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"--stall-timeout", "5"});
  ProcessGroup group(plan.programs(), folder, std::move(arguments));
  AllEnds all{.ends = group.wait(30), .errors = {}};
  for (const RunEnd& end : all.ends) all.errors += end.errors;
  return all;
}

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

}  // namespace

TEST_CASE("a program that nobody has launched looks at its data itself, at all of them") {
  const TwoStagePlan plan({.one_device = true});
  const RunFolder folder;
  CHECK(run_serial_process(plan.programs(), folder.path, {"--data", folder.path}).exit_code == 0);
  CHECK(run_serial_process(plan.programs(), folder.path, {}).exit_code == 0);  // synthetic data needs no folder
  CHECK(run_serial_process(plan.programs(), folder.path, {"--stpes", "3"}).exit_code == 2);
  CHECK(run_serial_process(plan.programs(), folder.path, {"--help"}).exit_code == 0);
  std::filesystem::remove(folder.path + "/t.npy");
  std::filesystem::remove(folder.path + "/x.npy");
  const RunEnd end = run_serial_process(plan.programs(), folder.path, {"--data", folder.path});
  CHECK(end.exit_code == 3);
  CHECK(mentions(end.errors, "'x.npy': the data folder has no such file"));
  CHECK(mentions(end.errors, "'t.npy': the data folder has no such file"));
}

TEST_CASE("NaN in the data is reported once with its row; the loss that it makes ends the run, and says where") {
  for (const auto& [serial, scales] : {std::pair(true, false), {false, false}, {true, true}, {false, true}}) {
    CAPTURE(serial);
    CAPTURE(scales);
    TwoStagePlan plan({.one_device = serial});
    plan.table().scales_loss = scales;  // which cannot be what makes it
    const RunFolder folder;
    folder.set("x.npy", 11, 2, kNan);  // in the second step, micro-batch 1
    folder.set("x.npy", 12, 2, kNan);
    const std::vector<std::string> arguments{"--data", folder.path, "--steps", "2"};
    std::vector<RunEnd> ends;
    std::string errors;
    if (serial) {
      ends = {run_serial_process(plan.programs(), folder.path, arguments)};
      errors = ends[0].errors;
    } else {
      const AllEnds all = run_pipeline(plan, folder.path, arguments);
      ends = all.ends;
      errors = all.errors;
    }
    CAPTURE(errors);
    CHECK(ends.back().exit_code == 1);
    CHECK(mentions(errors, "warning[bad-data] 'x.npy': row 11, column 2 (from 0) is not a number (NaN)"));
    CHECK_FALSE(mentions(errors, "row 12"));
    CHECK(
        mentions(errors, "the loss of step 2 is not a number (NaN), at F of samples [2,4) (micro-batch 1) of stage 1"));
    CHECK(mentions(errors, "of what the stage received from stage 0 element [1,"));
    CHECK(errors_in(errors) == 1);
    // The rank of the first stage names the operator that it comes from.
    const std::string note =
        "note[check-failed] before the loss that is not finite: stage 0, replica 0: the value of 'Tanh' 'tower/tanh' "
        "element [1,0] is not a number";
    CHECK(mentions(errors, note) == !serial);
    CHECK(mentions(ends.front().output, "step 1 of 2 loss "));
    CHECK_FALSE(mentions(ends.front().output, "step 2 of"));
  }
}

TEST_CASE(
    "an infinite loss leaves out the update where losses are scaled, and ends a run with exit 1 whose last it is") {
  for (const bool serial : {true, false}) {
    CAPTURE(serial);
    TwoStagePlan plan({.one_device = serial});
    plan.table().scales_loss = true;
    const auto end_after = [&](const std::string& steps) {
      const RunFolder folder;
      folder.set("t.npy", 11, 2, std::numeric_limits<float>::infinity());  // in the second step
      const std::vector<std::string> arguments{"--data", folder.path, "--steps", steps};
      if (serial) return run_serial_process(plan.programs(), folder.path, arguments);
      return run_pipeline(plan, folder.path, arguments).ends.front();
    };
    const RunEnd at_the_end = end_after("2"), before = end_after("3");
    CAPTURE(at_the_end.errors);
    CAPTURE(before.errors);
    CHECK(at_the_end.exit_code == 1);
    CHECK(mentions(at_the_end.errors,
                   "the loss of the last step is infinite, at loss scale 65536: of 2 steps 1 made no update"));
    CHECK(before.exit_code == 0);
    CHECK_FALSE(mentions(before.errors, "error["));
  }
}

TEST_CASE("a run whose loss is not finite keeps the checkpoint of the step before, whole") {
  const TwoStagePlan plan({.one_device = true});
  const RunFolder folder;
  folder.set("x.npy", 11, 2, kNan);  // in the second step
  const std::string kept = folder.path + "/kept", plain = folder.path + "/plain", resumed = folder.path + "/resumed";
  const auto run = [&](const std::vector<std::string>& words) {
    std::vector<std::string> all{"--data", folder.path};
    all.insert(all.end(), words.begin(), words.end());
    return run_serial_process(plan.programs(), folder.path, all).exit_code;
  };
  CHECK(run({"--steps", "2", "--checkpoint", kept, "--checkpoint-every", "1"}) == 1);
  graphpipe::Diagnostics problems;
  const auto last = find_last_checkpoint(kept, problems);
  REQUIRE(last.has_value());
  CHECK(problems.empty());
  CHECK(last->record.step == 1);
  CHECK_FALSE(last->record.files.empty());
  CHECK(run({"--steps", "1", "--save", plain}) == 0);
  CHECK(run({"--steps", "1", "--resume", kept, "--save", resumed}) == 0);
  CHECK((read_file(plain) == read_file(resumed)));
}

TEST_CASE(
    "all ranks of a run whose loss is not finite still finish the checkpoint of the step before, which is named") {
  for (const PlanShape& shape : {PlanShape{}, PlanShape{.micro_batch = {4, 2}, .replicas = {2, 1}}}) {
    const TwoStagePlan plan(shape);
    const RunFolder folder;
    folder.set("x.npy", 11, 2, kNan);  // in the second step
    for (int attempt = 0; attempt < 3; ++attempt) {
      const std::string kept = folder.path + "/kept" + std::to_string(attempt);
      const AllEnds all = run_pipeline(
          plan, folder.path, {"--data", folder.path, "--steps", "2", "--checkpoint", kept, "--checkpoint-every", "1"});
      CAPTURE(all.errors);
      CHECK(mentions(all.errors, "the loss of step 2 is not a number"));
      CHECK(mentions(all.errors, "note[interrupted] '" + kept + "/step-1': the last checkpoint, of step 1, is whole"));
      CHECK(names_in(kept) == std::vector<std::string>{"graphpipe-checkpoints.txt", "step-1"});
    }
  }
}

TEST_CASE("weights that a step has spoilt are named when the loss shows it") {
  const TwoStagePlan plan({.one_device = true});
  const RunFolder folder;
  const RunEnd end =
      run_serial_process(plan.programs(), folder.path, {"--data", folder.path, "--steps", "9", "--lr", "1e39"});
  CAPTURE(end.errors);
  CHECK(end.exit_code == 1);
  CHECK(mentions(end.errors, "the loss of step "));
  CHECK(mentions(end.errors, "of the weights 'w1' element ["));
}

TEST_CASE("weights that the last step has spoilt are written and named; of a checkpoint they are not written") {
  const TwoStagePlan plan({.one_device = true}), two({});
  const RunFolder folder;
  const std::vector<std::string> spoils{"--data", folder.path, "--steps", "1", "--lr", "1e39"};
  const auto with = [&](const std::string& flag, const std::string& path) {
    std::vector<std::string> words = spoils;
    words.insert(words.end(), {flag, path});
    return words;
  };
  const std::string file = folder.path + "/spoilt.safetensors", kept = folder.path + "/kept";
  const RunEnd serial = run_serial_process(plan.programs(), folder.path, with("--save", file));
  CAPTURE(serial.errors);
  CHECK(serial.exit_code == 1);
  CHECK(mentions(serial.errors, "the saved weights are not finite: 'w"));
  CHECK(std::filesystem::remove(file));
  const AllEnds all = run_pipeline(two, folder.path, with("--save", file));
  CAPTURE(all.errors);
  CHECK(mentions(all.errors, "the saved weights are not finite: 'w"));
  CHECK(all.ends[0].exit_code == 1);
  CHECK(all.ends[1].exit_code == 0);
  CHECK(errors_in(all.errors) == 1);
  CHECK(std::filesystem::exists(file));
  const RunEnd checkpoint = run_serial_process(plan.programs(), folder.path, with("--checkpoint", kept));
  CAPTURE(checkpoint.errors);
  CHECK(checkpoint.exit_code == 1);
  CHECK(mentions(checkpoint.errors, "a checkpoint is not written, its weights are not finite: 'w"));
  CHECK(names_in(kept) == std::vector<std::string>{"graphpipe-checkpoints.txt"});
  const AllEnds ranks = run_pipeline(two, folder.path, with("--checkpoint", kept + "-of-two"));
  CAPTURE(ranks.errors);
  CHECK(mentions(ranks.errors, "a checkpoint is not written, its weights are not finite: 'w"));
  CHECK(names_in(kept + "-of-two") == std::vector<std::string>{"graphpipe-checkpoints.txt"});
}

TEST_CASE("the loss of an evaluation that is not finite ends a run with 1, behind its results") {
  const TwoStagePlan plan({.one_device = true}), two({});
  const RunFolder folder, evaluated;
  evaluated.set("x.npy", 3, 2, kNan);
  const std::vector<std::string> words{"--data", folder.path, "--eval-data", evaluated.path, "--steps", "2"};
  const RunEnd serial = run_serial_process(plan.programs(), folder.path, words);
  CAPTURE(serial.errors);
  CHECK(serial.exit_code == 1);
  CHECK(mentions(serial.errors, "the loss of the evaluation after step 2 is not a number"));
  CHECK(mentions(serial.output, "evaluation after step 2"));
  std::vector<std::string> as_json = words;
  as_json.push_back("--json");
  CHECK(mentions(run_serial_process(plan.programs(), folder.path, as_json).output,
                 "\"message\": \"the loss of the evaluation after step 2 is not a number"));
  const AllEnds all = run_pipeline(two, folder.path, words);
  CAPTURE(all.errors);
  CHECK(mentions(all.errors, "the loss of the evaluation after step 2 is not a number"));
  CHECK(all.ends[0].exit_code == 1);
  CHECK(all.ends[1].exit_code == 0);
}

TEST_CASE("weights that are not finite are refused with their name and place before the first step") {
  const TwoStagePlan plan({.one_device = true});
  const RunFolder folder;
  const std::string path = folder.path + "/own.safetensors";
  for (const float number : {kNan, -std::numeric_limits<float>::infinity()}) {
    at::Tensor bad = at::full({6, 6}, 1.0);
    bad.mutable_data_ptr<float>()[8] = number;
    write_safetensors(path, {{"w0", bad}, {"b0", at::full({6}, 0.0)}, {"w1", at::full({6, 6}, 0.0)}});
    const RunEnd end = run_serial_process(plan.programs(), folder.path, {"--data", folder.path, "--weights", path});
    CAPTURE(end.errors);
    CHECK(end.exit_code == 3);
    CHECK(mentions(end.errors,
                   std::string("'w0': element [1,2] is ") + (std::isnan(number) ? "not a number" : "infinite")));
    CHECK(end.output.empty());
  }
}

TEST_CASE("weights of another model are refused with what the file has in place of the model's") {
  const TwoStagePlan plan({.one_device = true});
  const RunFolder folder;
  const std::string path = folder.path + "/own.safetensors";
  const at::Tensor bias = at::full({6}, 0.0), weight = at::full({6, 6}, 0.0);
  const auto refusal = [&](const std::vector<NamedTensor>& tensors) {
    write_safetensors(path, tensors);
    const RunEnd end = run_serial_process(plan.programs(), folder.path, {"--data", folder.path, "--weights", path});
    CHECK(end.exit_code == 3);
    return end.errors;
  };
  const auto check = [&](const std::string& found, const std::string& words) {
    CAPTURE(found);
    CHECK(mentions(found, words));
    CHECK(mentions(found, "pass --weights a file that `run --save` of this model wrote"));
  };
  check(refusal({{"w0", at::full({5, 6}, 0.0)}, {"b0", bias}, {"w1", weight}}),
        "has no float32[6,6] named 'w0': there it is float32[5,6]");
  check(refusal({{"a", bias}, {"module.w0", weight}, {"b0", bias}, {"w1", weight}}),
        "'w0': it has 4 tensors, such as 'module.w0', float32[6,6]");
  check(refusal({{"a", bias}, {"b0", bias}, {"c", bias}, {"d", bias}}),
        "'w0': it has 4 tensors, such as 'a', float32[6]; 'b0', float32[6]; 'c', float32[6]");
  check(refusal({}), "'w0': it has 0 tensors");
}

TEST_CASE("a step whose labels all do not count has no loss: the run ends, or skips it") {
  static const char* const kName = "t";
  TwoStagePlan plan({.one_device = true});
  plan.table().loss = {.normalizer = LossRow::Normalizer::kCountedPositions,
                       .label = {kName, plan.programs()[0].stages[1]->data[0].tensor, 0},
                       .ignore_index = 0,
                       .has_ignore_index = true};
  const RunFolder folder;
  for (int64_t row = 0; row < 8; ++row)
    for (int64_t column = 0; column < 6; ++column) folder.set("t.npy", row, column, 0);
  const RunEnd end = run_serial_process(plan.programs(), folder.path, {"--data", folder.path});
  CAPTURE(end.errors);
  CHECK(end.exit_code == 3);
  CHECK(mentions(end.errors, "all labels of samples [0,8) of step 1 are 0 and do not count"));
  // The second step then is the only one.
  const RunEnd skipping =
      run_serial_process(plan.programs(), folder.path,
                         {"--data", folder.path, "--steps", "2", "--on-anomaly", "skip", "--save", folder.path + "/w"});
  CAPTURE(skipping.errors);
  CHECK(skipping.exit_code == 0);
  CHECK(mentions(skipping.errors, "step 1 was skipped: all labels of samples [0,8) of step 1 are 0"));
  for (int64_t row = 0; row < 8; ++row)
    for (const char* file : {"t.npy", "x.npy"}) folder.copy_row(file, row + 8, row);  // the second step's
  CHECK(run_serial_process(plan.programs(), folder.path, {"--data", folder.path, "--save", folder.path + "/one"})
            .exit_code == 0);
  CHECK((read_file(folder.path + "/w") == read_file(folder.path + "/one")));
}

TEST_CASE("a result that cannot be written is an error, not a success") {
  const TwoStagePlan plan({.one_device = true});
  const RunFolder folder;
  for (const std::string json : {"", "--json"}) {
    std::vector<std::string> arguments{"--data", folder.path};
    if (!json.empty()) arguments.push_back(json);
    const RunEnd end = run_serial_process(plan.programs(), folder.path, arguments, "/dev/full");
    CHECK(end.exit_code == 5);
    CHECK(mentions(end.errors, "cannot be written"));
  }
}
