// Asynchronous schedules: weight versions, delayed updates and several steps within a window. Distributed runs give the
// bits of the serial interpreter, and the numbers of plain loops that apply the same versions.

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "runtime/io/safetensors.h"
#include "runtime/optimizers/optimizer.h"
#include "runtime/optimizers/update_settings.h"
#include "tests/runtime/chain_plan.h"
#include "tests/runtime/run_programs.h"

using namespace graphpipe::runtime;
using namespace graphpipe::runtime::test;

namespace {

constexpr int64_t kVersionSteps = 2;

struct VersionCase {
  const char* name;
  ChainShape shape;
};

const std::vector<VersionCase>& version_cases() {
  static const std::vector<VersionCase> kVersionCases = {
      {"weight stashing", {.stages = 4, .micro_batches = 7}},
      {"weight stashing, two micro-batches an update", {.micro_batches = 8, .per_update = 2}},
      {"vertical sync", {.versions = Versions::kVerticalSync}},
      {"two buffers", {.micro_batches = 12, .versions = Versions::kTwoBuffers, .per_update = 3}},
      {"two buffers, split backward",
       {.micro_batches = 9, .versions = Versions::kTwoBuffers, .per_update = 3, .split_backward = true}},
      {"stashing with recompute", {.recompute = true}},
      {"replicas that take turns", {.stages = 3, .micro_batches = 8, .replicas = {2, 1, 1}}},
      {"replicas below", {.stages = 2, .micro_batches = 7, .replicas = {1, 2}}},
      {"parameter server", {.stages = 1, .micro_batches = 7, .replicas = {3}, .every_item = true}},
      {"flush", {.versions = Versions::kFlush}},
  };
  return kVersionCases;
}

std::vector<std::string> version_words(const std::string& folder, const std::string& tag, int64_t steps = kVersionSteps,
                                       const std::vector<std::string>& more = {}) {
  return TrainingFlags{.steps = steps, .lr = "0.2", .momentum = "0.5"}.words(folder, tag, more);
}

void check_close_to(const std::map<std::string, std::vector<float>>& plain, const std::string& path,
                    double tolerance = 1e-4) {
  const Safetensors file(path);
  for (const auto& [name, numbers] : plain) {
    CAPTURE(name);
    const TensorPlace* place = file.find(name);
    REQUIRE(place != nullptr);
    const at::Tensor tensor = file.view(*place);
    REQUIRE(tensor.numel() == static_cast<int64_t>(numbers.size()));
    for (size_t i = 0; i < numbers.size(); ++i)
      CHECK(tensor.const_data_ptr<float>()[i] == doctest::Approx(numbers[i]).epsilon(tolerance));
  }
}

}  // namespace

TEST_CASE("asynchronous schedules give the interpreter's bits, and the numbers of plain loops with the same versions") {
  for (const VersionCase& c : version_cases()) {
    CAPTURE(c.name);
    const std::string folder =
        make_chain_folder(c.shape.stages, kVersionSteps * c.shape.micro_batch * c.shape.micro_batches);
    const ChainPlan plan(c.shape);
    const RunEnd serial = run_serial_process(plan.programs(), folder, version_words(folder, "serial"));
    CAPTURE(serial.errors);
    REQUIRE(serial.exit_code == 0);
    const RunEnd pipeline = run_all(plan.programs(), folder, version_words(folder, "pipeline"));
    CHECK(numbers_of(pipeline.output, "losses") == numbers_of(serial.output, "losses"));
    CHECK(numbers_of(serial.output, "losses").size() == kVersionSteps);
    for (const char* file : {".w", ".g"})
      CHECK(read_file(folder + "/pipeline" + file) == read_file(folder + "/serial" + file));
    check_close_to(train_plainly(c.shape, plan, kVersionSteps, 0.2, 0.5), folder + "/serial.w");
    std::filesystem::remove_all(folder);
  }
}

// Three steps of four micro-batches, and the same twelve as one step: weight versions do not see where a step ends, but
// losses and learning rates go by it.
TEST_CASE("steps that follow each other without a drain make the updates of one step of all their samples") {
  const ChainShape shapes[] = {
      {.stages = 4},
      {.versions = Versions::kVerticalSync},
      {.versions = Versions::kTwoBuffers, .per_update = 4},
      {.stages = 2, .versions = Versions::kTwoBuffers, .per_update = 2, .split_backward = true},
      {.stages = 3, .replicas = {2, 1, 1}},
      {.stages = 1, .replicas = {2}, .every_item = true}};
  for (ChainShape shape : shapes) {
    shape.micro_batches = 12;
    const ChainPlan as_one(shape);
    shape.batches = 3;
    const ChainPlan plan(shape);
    CAPTURE(shape.stages);
    CAPTURE(shape.per_update);
    const int64_t steps = kVersionSteps * shape.batches;
    const std::string folder = make_chain_folder(shape.stages, kVersionSteps * shape.micro_batch * 12);
    const RunEnd one = run_serial_process(as_one.programs(), folder, version_words(folder, "one"));
    const RunEnd serial = run_serial_process(plan.programs(), folder, version_words(folder, "serial", steps));
    CAPTURE(serial.errors);
    REQUIRE(serial.exit_code == 0);
    const RunEnd pipeline = run_all(plan.programs(), folder, version_words(folder, "pipeline", steps));
    CHECK(numbers_of(pipeline.output, "losses") == numbers_of(serial.output, "losses"));
    for (const char* tag : {"pipeline", "one"})
      for (const char* file : {".w", ".g"})
        CHECK(read_file(folder + "/" + tag + file) == read_file(folder + "/serial" + file));
    const std::vector<double> losses = numbers_of(serial.output, "losses"), means = numbers_of(one.output, "losses");
    REQUIRE(losses.size() == 6);
    for (size_t i = 0; i < means.size(); ++i)
      CHECK((losses[3 * i] + losses[3 * i + 1] + losses[3 * i + 2]) / 3 == doctest::Approx(means[i]));
    CHECK(losses[0] != losses[1]);
    std::filesystem::remove_all(folder);
  }
}

TEST_CASE("an update has the learning rate of the step that its samples are of") {
  ChainShape shape{.micro_batches = 12, .per_update = 2};
  const std::string folder = make_chain_folder(shape.stages, shape.micro_batch * shape.micro_batches);
  const double factors[] = {1, 0.25, 2};
  std::ofstream(folder + "/rates") << "1 1\n2 0.25\n3 2\n";
  std::map<std::pair<int, size_t>, size_t> updates;
  const auto update = [&](int stage, size_t parameter, at::Tensor& weight, const at::Tensor& gradient) {
    const double factor = factors[updates[{stage, parameter}]++ / 2];
    for (int64_t i = 0; i < weight.numel(); ++i)
      weight.mutable_data_ptr<double>()[i] -= 0.2 * factor * gradient.const_data_ptr<double>()[i];
  };
  const auto plain = train_plainly(shape, ChainPlan(shape), 1, update);
  shape.batches = 3;
  const ChainPlan plan(shape);
  const std::vector<std::string> words = {"--data",
                                          folder,
                                          "--steps",
                                          "3",
                                          "--lr",
                                          "0.2",
                                          "--json",
                                          "--lr-file",
                                          folder + "/rates",
                                          "--save",
                                          folder + "/pipeline.w"};
  run_all(plan.programs(), folder, words);
  check_close_to(plain, folder + "/pipeline.w");
  std::filesystem::remove_all(folder);
}

// PipeDream's rule: R(s)/R(0) times the learning rate in stage s. The updates of each stage are made by hand.
TEST_CASE("a learning rate goes by a stage's replicas over those of the first one") {
  for (const std::vector<int>& replicas : {std::vector{2, 1, 1}, std::vector{1, 2, 1}, std::vector{2, 1, 2}}) {
    CAPTURE(replicas[0] + 10 * replicas[1]);
    const ChainShape shape{.micro_batches = 8, .replicas = replicas};
    const ChainPlan plan(shape);
    const std::string folder = make_chain_folder(shape.stages, kVersionSteps * shape.micro_batch * shape.micro_batches);
    const auto words = [&](const std::string& tag) {
      return version_words(folder, tag, kVersionSteps, {"--lr-by-replicas"});
    };
    std::map<std::pair<int, size_t>, at::Tensor> velocities;
    const auto update = [&](int stage, size_t parameter, at::Tensor& weight, const at::Tensor& gradient) {
      const double rate = 0.2 * replicas[static_cast<size_t>(stage)] / replicas[0];
      const auto [velocity, is_first] = velocities.try_emplace({stage, parameter}, gradient.clone());
      for (int64_t i = 0; i < weight.numel(); ++i) {
        double& v = velocity->second.mutable_data_ptr<double>()[i];
        if (!is_first) v = 0.5 * v + gradient.const_data_ptr<double>()[i];
        weight.mutable_data_ptr<double>()[i] -= rate * v;
      }
    };
    const auto plain = train_plainly(shape, plan, kVersionSteps, update);
    const RunEnd serial = run_serial_process(plan.programs(), folder, words("serial"));
    CAPTURE(serial.errors);
    REQUIRE(serial.exit_code == 0);
    check_close_to(plain, folder + "/serial.w");
    run_all(plan.programs(), folder, words("pipeline"));
    CHECK(read_file(folder + "/pipeline.w") == read_file(folder + "/serial.w"));
    const RunEnd unscaled = run_serial_process(plan.programs(), folder, version_words(folder, "unscaled"));
    CHECK(read_file(folder + "/unscaled.w") != read_file(folder + "/serial.w"));
    std::filesystem::remove_all(folder);
  }
}

// docs/schedules.md, section 3: it drains where a checkpoint is due, so the checkpoint is of a whole state.
TEST_CASE("a training that goes on from a checkpoint between two drains has the bits of one that was not interrupted") {
  const ChainShape shape{.micro_batches = 12, .batches = 3};
  const ChainPlan plan(shape);
  const std::string folder = make_chain_folder(shape.stages, 2 * shape.micro_batch * shape.micro_batches);
  const auto run = [&](const std::string& tag, int64_t steps, const std::string& checkpoints, bool resumes) {
    std::vector<std::string> more = {"--checkpoint", folder + "/" + checkpoints, "--checkpoint-every", "2"};
    if (resumes) more.insert(more.end(), {"--resume", folder + "/" + checkpoints});
    run_all(plan.programs(), folder, version_words(folder, tag, steps, more));
  };
  run("whole", 6, "a", false);
  run("first", 2, "b", false);
  run("second", 6, "b", true);
  CHECK(read_file(folder + "/second.w") == read_file(folder + "/whole.w"));
  run_all(plan.programs(), folder, version_words(folder, "undrained", 6));
  CHECK(read_file(folder + "/undrained.w") != read_file(folder + "/whole.w"));
  std::filesystem::remove_all(folder);
}

// Stages, in-flight items, replicas and versions differ; what an update is, does not.
TEST_CASE("every optimizer makes its updates in synchronous and asynchronous schedules, with the interpreter's bits") {
  const ChainShape shapes[] = {{.versions = Versions::kFlush},
                               {.stages = 2, .replicas = {1, 2}},
                               {.micro_batches = 6, .versions = Versions::kTwoBuffers, .per_update = 3}};
  for (const graphpipe::wire::OptimizerEntry& entry : graphpipe::wire::optimizers()) {
    CAPTURE(entry.name);
    const UpdateSettings settings = update_settings(entry.name, {.learning_rate = 0.05});
    for (ChainShape shape : shapes) {
      shape.optimizer = entry.name;
      CAPTURE(shape.per_update);
      const ChainPlan plan(shape);
      const std::string folder =
          make_chain_folder(shape.stages, kVersionSteps * shape.micro_batch * shape.micro_batches);
      const auto words = [&](const std::string& tag) {
        return std::vector<std::string>{
            "--data", folder,   "--steps",         std::to_string(kVersionSteps), "--lr", "0.05",
            "--json", "--save", folder + "/" + tag};
      };
      const RunEnd serial = run_serial_process(plan.programs(), folder, words("serial.w"));
      CAPTURE(serial.errors);
      REQUIRE(serial.exit_code == 0);
      run_all(plan.programs(), folder, words("pipeline.w"));
      CHECK(read_file(folder + "/pipeline.w") == read_file(folder + "/serial.w"));
      std::map<int, Optimizer> optimizers;
      const auto update = [&](int stage, size_t i, at::Tensor& weight, const at::Tensor& gradient) {
        const auto terms_of = [&](size_t dims) { return settings.terms_of("w", dims, false); };
        optimizers.try_emplace(stage, entry.name, std::vector<UpdateTerms>{terms_of(2), terms_of(1)})
            .first->second.step(i, weight, gradient);
      };
      // Muon's iterations enlarge what float32 rounds (runtime/optimizers/muon.cpp).
      check_close_to(train_plainly(shape, plan, kVersionSteps, update), folder + "/serial.w", 1e-3);
      std::filesystem::remove_all(folder);
    }
  }
}

TEST_CASE("a forward-only program computes the loss and trains nothing") {
  const ChainShape shape{.versions = Versions::kFlush, .forward_only = true};
  const std::string folder = make_chain_folder(shape.stages, kVersionSteps * 12);
  const ChainPlan plan(shape), trained({.versions = Versions::kFlush});
  const RunEnd end = run_all(plan.programs(), folder, version_words(folder, "pipeline"));
  const RunEnd serial = run_serial_process(plan.programs(), folder, version_words(folder, "serial"));
  const RunEnd training = run_serial_process(trained.programs(), folder, version_words(folder, "trained"));
  REQUIRE(numbers_of(end.output, "losses").size() == kVersionSteps);
  CHECK(numbers_of(end.output, "losses") == numbers_of(serial.output, "losses"));
  CHECK(numbers_of(end.output, "losses")[0] == numbers_of(training.output, "losses")[0]);
  const Safetensors before(folder + "/weights.safetensors"), after(folder + "/pipeline.w");
  for (const auto& [name, place] : before.tensors()) CHECK(before.view(place).equal(after.view(*after.find(name))));
  std::filesystem::remove_all(folder);
}

TEST_CASE("programs with versions that are not there are refused by name") {
  using graphpipe::wire::ActionOp;
  struct Damage {
    const char* message;
    void (*apply)(std::vector<graphpipe::wire::ActionRow>&);
  };
  const auto first = [](std::vector<graphpipe::wire::ActionRow>& rows, ActionOp op) {
    return std::ranges::find(rows, op, &graphpipe::wire::ActionRow::op);
  };
  static const auto kFirst = first;
  const Damage damages[] = {
      {"there is no weight version 5",
       [](std::vector<graphpipe::wire::ActionRow>& rows) { kFirst(rows, ActionOp::kForward)->version = 5; }},
      {"it makes version 3 after version 0",
       [](std::vector<graphpipe::wire::ActionRow>& rows) { kFirst(rows, ActionOp::kStep)->version = 3; }},
      {"it comes after the step that needs its gradients",
       [](std::vector<graphpipe::wire::ActionRow>& rows) {
         const auto step = kFirst(rows, ActionOp::kStep);
         std::rotate(kFirst(rows, ActionOp::kBackward), step, step + 1);
       }},
      {"its samples lie in no step's range",
       [](std::vector<graphpipe::wire::ActionRow>& rows) {
         std::erase_if(rows, [](const auto& row) { return row.op == ActionOp::kStep && row.version > 2; });
       }},
      {"there is no old weight version 0",
       [](std::vector<graphpipe::wire::ActionRow>& rows) {
         rows.insert(rows.begin(), {.op = ActionOp::kFreeVersion, .stage = 0});
       }},
  };
  for (const Damage& damage : damages) {
    CAPTURE(damage.message);
    const ChainShape shape{.stages = 1, .micro_batches = 4};
    const std::string folder = make_chain_folder(1, 8);
    ChainPlan plan(shape);
    std::vector<graphpipe::wire::ActionRow>& rows = plan.actions(0);
    damage.apply(rows);
    std::vector<DeviceProgram> programs = plan.programs();
    programs[0].actions = rows;
    ProcessGroup group(programs, folder, version_words(folder, "damaged"));
    const RunEnd end = group.wait(60).front();
    CHECK(end.exit_code == 3);
    CHECK(end.errors.find(damage.message) != std::string::npos);
    std::filesystem::remove_all(folder);
  }
}
