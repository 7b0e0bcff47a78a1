// Both checks of docs/semantics.md, section 2, on hand-written tables: distributed runs give the bits of the serial
// interpreter, and the numbers of one full batch.

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "tests/runtime/chain_plan.h"
#include "tests/runtime/run_programs.h"
#include "tests/runtime/two_stage_plan.h"

using namespace graphpipe::runtime;
using namespace graphpipe::runtime::test;

namespace {

struct Case {
  const char* name;
  PlanShape shape;
  std::vector<std::string> flags = {};
};

const std::vector<Case>& cases() {
  static const std::vector<Case> kCases = {
      {"equal micro-batches", {}},
      {"one device", {.one_device = true}},
      {"unequal micro-batches", {.batch = 7, .micro_batch = {3, 2}}},
      {"replicas, split", {.micro_batch = {4, 2}, .replicas = {3, 1}}},
      {"replicas on both sides", {.micro_batch = {4, 8}, .replicas = {2, 2}}},
      {"replicas, round robin", {.replicas = {2, 1}, .mode = ReplicaMode::kRoundRobin}},
      {"shared weights", {.micro_batch = {2, 4}, .shared = true}},
      {"shared weights with replicas", {.micro_batch = {4, 4}, .replicas = {2, 2}, .shared = true}},
      {"shared weights with unequal replicas", {.micro_batch = {6, 6}, .replicas = {3, 2}, .shared = true}},
      {"four replicas", {.micro_batch = {4, 8}, .replicas = {1, 4}, .optimizer = "adamw"}},
      {"recompute", {.micro_batch = {4, 2}, .recompute = true}},
      {"stated memory", {.micro_batch = {4, 2}, .states_memory = true}},
      {"stated memory with recompute", {.micro_batch = {2, 4}, .recompute = true, .states_memory = true}},
      {"batch axis last", {.micro_batch = {4, 2}, .batch_last = true}},
      {"a device with nothing to train joins the norm", {.micro_batch = {4, 2}, .last_frozen = true}},
      {"AdamW", {.micro_batch = {4, 2}, .replicas = {2, 1}, .optimizer = "adamw"}},
      {"Muon, with groups, a schedule and an average",
       {.micro_batch = {4, 2}, .replicas = {2, 1}, .optimizer = "muon"},
       {"--group", "w*:lr=0.05,weight-decay=0", "--no-decay", "norms-and-biases", "--lr-schedule", "cosine:4",
        "--warmup", "1", "--ema", "0.75"}},
      {"LAMB of shared weights, clipped by value",
       {.micro_batch = {4, 4}, .replicas = {2, 2}, .shared = true, .optimizer = "lamb"},
       {"--clip-value", "0.01", "--ema", "0.5"}},
      {"Adagrad over two steps of each update",
       {.micro_batch = {4, 2}, .replicas = {2, 1}, .optimizer = "adagrad"},
       {"--accumulate", "2", "--lr-schedule", "step:2,0.5", "--ema", "0.5"}},
  };
  return kCases;
}

struct Outcome {
  std::vector<double> losses, norms;
  std::string weights, gradients, average;
};

std::vector<std::string> arguments(const std::string& folder, const std::string& tag,
                                   const std::vector<std::string>& more = {}) {
  std::vector<std::string> words =
      TrainingFlags{.steps = 3, .lr = "0.1", .momentum = "0.9"}.words(folder, tag, {"--clip-norm", "0.2"});
  words.insert(words.end(), more.begin(), more.end());
  if (std::ranges::find(more, "--ema") != more.end())
    words.insert(words.end(), {"--save-ema", folder + "/" + tag + ".e"});
  return words;
}

Outcome outcome_of(const RunEnd& end, const std::string& folder, const std::string& tag) {
  CAPTURE(end.errors);
  REQUIRE(end.exit_code == 0);
  Outcome out;
  out.losses = numbers_of(end.output, "losses");
  out.norms = numbers_of(end.output, "gradient_norms");
  out.weights = read_file(folder + "/" + tag + ".w");
  out.gradients = read_file(folder + "/" + tag + ".g");
  if (std::filesystem::exists(folder + "/" + tag + ".e")) out.average = read_file(folder + "/" + tag + ".e");
  REQUIRE(out.losses.size() == 3);
  REQUIRE(out.weights.size() > 100);
  return out;
}

Outcome run_serial_case(const TwoStagePlan& plan, const std::string& folder, const std::string& tag,
                        const std::vector<std::string>& more = {}) {
  return outcome_of(run_serial_process(plan.programs(), folder, arguments(folder, tag, more)), folder, tag);
}

Outcome run_distributed(const TwoStagePlan& plan, const std::string& folder, const std::string& transport,
                        const std::vector<std::string>& more = {}) {
  std::vector<std::string> words = arguments(folder, transport, more);
  words.insert(words.end(), {"--transport", transport});
  return outcome_of(run_all(plan.programs(), folder, words), folder, transport);
}

void check_same_bits(const Outcome& a, const Outcome& b) {
  CHECK(a.losses == b.losses);
  CHECK(a.norms == b.norms);
  CHECK(a.gradients == b.gradients);
  CHECK(a.weights == b.weights);
  CHECK(a.average == b.average);
}

void check_close(const Outcome& a, const Outcome& b) {
  for (size_t i = 0; i < a.losses.size(); ++i) CHECK(a.losses[i] == doctest::Approx(b.losses[i]).epsilon(1e-5));
  REQUIRE(a.norms.size() == b.norms.size());
  for (size_t i = 0; i < a.norms.size(); ++i) CHECK(a.norms[i] == doctest::Approx(b.norms[i]).epsilon(1e-4));
}

}  // namespace

TEST_CASE("every plan gives the interpreter's bits over shared memory, and one batch's numbers") {
  for (const Case& c : cases()) {
    CAPTURE(c.name);
    const std::string folder = make_folder(c.shape.shared, 19);
    const TwoStagePlan plan(c.shape);
    const Outcome serial = run_serial_case(plan, folder, "serial", c.flags);
    check_same_bits(run_distributed(plan, folder, "shm", c.flags), serial);
    CHECK(serial.average.empty() == (std::ranges::find(c.flags, "--ema") == c.flags.end()));
    CHECK(serial.average != serial.weights);
    const PlanShape whole{.batch = c.shape.batch,
                          .micro_batch = {c.shape.batch, c.shape.batch},
                          .shared = c.shape.shared,
                          .last_frozen = c.shape.last_frozen,
                          .optimizer = c.shape.optimizer};
    check_close(serial, run_serial_case(TwoStagePlan(whole), folder, "whole", c.flags));
    CHECK(serial.losses[0] != serial.losses[1]);
    std::filesystem::remove_all(folder);
  }
}

TEST_CASE("replicas sum complete gradients while the last backward runs, with the interpreter's bits") {
  const PlanShape shapes[] = {{.micro_batch = {4, 8}, .replicas = {2, 2}},
                              {.micro_batch = {4, 4}, .replicas = {3, 2}, .shared = true}};
  for (PlanShape shape : shapes) {
    CAPTURE(shape.shared);
    const std::string folder = make_folder(shape.shared, 19);
    const Outcome serial = run_serial_case(TwoStagePlan(shape), folder, "serial");
    check_same_bits(run_distributed(TwoStagePlan(shape), folder, "shm", {"--overlap-all-reduce", "never"}), serial);
    shape.awaits_sums = true;
    for (const char* transport : {"shm", "tcp"})
      check_same_bits(run_distributed(TwoStagePlan(shape), folder, transport, {"--overlap-all-reduce", "always"}),
                      serial);
    std::filesystem::remove_all(folder);
  }
}

// 19 samples: two whole steps, then one of the three or five that are left.
TEST_CASE("the rest of an epoch is trained alone: the interpreter's bits on every plan, and one batch's numbers") {
  for (const Case& c : cases()) {
    CAPTURE(c.name);
    const std::string folder = make_folder(c.shape.shared, 19);
    const TwoStagePlan plan(c.shape);
    const std::vector<std::string> flags = {"--last-batch", "train", "--shuffle", "--seed", "4"};
    const Outcome serial = run_serial_case(plan, folder, "serial", flags);
    check_same_bits(run_distributed(plan, folder, "shm", flags), serial);
    const PlanShape whole{.batch = c.shape.batch,
                          .micro_batch = {c.shape.batch, c.shape.batch},
                          .shared = c.shape.shared,
                          .last_frozen = c.shape.last_frozen,
                          .optimizer = c.shape.optimizer};
    check_close(serial, run_serial_case(TwoStagePlan(whole), folder, "whole", flags));
    std::filesystem::remove_all(folder);
  }
}

TEST_CASE("copies of a parameter that have parted end a run that saves, by name, stages and replicas") {
  const std::pair<PlanShape, const char*> drifting[] = {
      {{.micro_batch = {4, 2}, .replicas = {2, 1}, .drifts = true},
       "'w0': its copies have parted: that of stage 0, replica 0 holds other numbers than that of stage 0, replica 1"},
      {{.micro_batch = {6, 8}, .replicas = {3, 1}, .shared = true, .drifts = true},
       "that of stage 0, replica 0 holds other numbers than that of stage 0, replica 1; stage 0, replica 2; nothing"},
      {{.shared = true, .drifts = true},
       "that of stage 0, replica 0 holds other numbers than that of stage 1, replica 0"},
  };
  for (const auto& [shape, words] : drifting) {
    CAPTURE(words);
    const std::string folder = make_folder(shape.shared, 19);
    const TwoStagePlan plan(shape);
    const std::vector<std::string> saving{"--data", folder, "--save", folder + "/w"};
    const RunEnd serial = run_serial_process(plan.programs(), folder, saving);
    ProcessGroup group(plan.programs(), folder, saving);
    for (const RunEnd& end : {serial, group.wait(60).front()}) {
      CAPTURE(end.errors);
      CHECK(end.exit_code == 1);
      CHECK(end.errors.find(words) != std::string::npos);
    }
    CHECK_FALSE(std::filesystem::exists(folder + "/w"));
    // A checkpoint has one of them too.
    const std::vector<std::string> keeping{"--data", folder, "--checkpoint", folder + "/c"};
    ProcessGroup keepers(plan.programs(), folder, keeping);
    for (const RunEnd& end :
         {run_serial_process(plan.programs(), folder, {"--data", folder, "--checkpoint", folder + "/s"}),
          keepers.wait(60).front()}) {
      CAPTURE(end.errors);
      CHECK(end.exit_code == 1);
      CHECK(end.errors.find(words) != std::string::npos);
    }
    for (const char* kept : {"/c", "/s"})
      for (const auto& entry : std::filesystem::directory_iterator(folder + kept))
        CHECK(!entry.path().filename().string().starts_with("step-"));
    std::filesystem::remove_all(folder);
  }
}

TEST_CASE("a step of fewer samples computes the bits of a plan of that batch") {
  for (const bool recompute : {false, true})
    for (const int64_t rest : {1, 3, 4, 5}) {
      CAPTURE(rest);
      const std::string folder = make_folder(false, rest);
      PlanShape shape{.batch = 8, .micro_batch = {2, 4}, .recompute = recompute};
      const Outcome of_rest = run_serial_case(TwoStagePlan(shape), folder, "rest", {"--last-batch", "train"});
      shape.batch = rest;
      check_same_bits(run_serial_case(TwoStagePlan(shape), folder, "small"), of_rest);
      std::filesystem::remove_all(folder);
    }
}

TEST_CASE("--last-batch train is refused where weights change within a step, and orders without files are") {
  const std::string folder = make_chain_folder(2, 17);
  const ChainPlan plan({.stages = 2});
  const RunEnd end = run_serial_process(plan.programs(), folder, {"--data", folder, "--last-batch", "train"});
  CHECK(end.exit_code == 2);
  CHECK(end.errors.find("applies gradients of parts of the batch") != std::string::npos);
  const RunEnd synthetic = run_serial_process(plan.programs(), folder, {"--shuffle"});
  CHECK(synthetic.exit_code == 2);
  CHECK(synthetic.errors.find("the run reads none") != std::string::npos);
  std::filesystem::remove_all(folder);
}

TEST_CASE("clipping is refused where a device steps before its compute is over") {
  const std::string folder = make_folder(false, 19);
  TwoStagePlan plan({.one_device = true});
  std::vector<graphpipe::wire::ActionRow>& actions = plan.actions(0);
  using graphpipe::wire::ActionOp;
  const graphpipe::wire::ActionRow last_step = actions.back();  // of stage 1
  actions.pop_back();
  std::erase_if(actions, [](const auto& row) { return row.op == ActionOp::kReduceGradient; });
  actions.insert(std::ranges::find(actions, ActionOp::kBackward, &graphpipe::wire::ActionRow::op), last_step);
  std::vector<DeviceProgram> programs = plan.programs();
  programs[0].actions = actions;
  ProcessGroup group(programs, folder, arguments(folder, "early"));
  const RunEnd end = group.wait(60).front();
  CHECK(end.exit_code == 3);
  CHECK(end.errors.find("--clip-norm") != std::string::npos);
  std::filesystem::remove_all(folder);
}

TEST_CASE("TCP gives the same bits") {
  for (const size_t index : {size_t{2}, size_t{4}, size_t{8}}) {
    const Case& c = cases()[index];
    CAPTURE(c.name);
    const std::string folder = make_folder(c.shape.shared, 19);
    const TwoStagePlan plan(c.shape);
    check_same_bits(run_distributed(plan, folder, "tcp"), run_serial_case(plan, folder, "serial"));
    std::filesystem::remove_all(folder);
  }
}
