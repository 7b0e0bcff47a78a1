// Checkpoints of whole runs, on hand-written tables: a run that was interrupted gives the bits of one that was not.

#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "runtime/checkpoint/checkpoint_folder.h"
#include "tests/runtime/chain_plan.h"
#include "tests/runtime/run_programs.h"
#include "tests/runtime/two_stage_plan.h"
#include "wire/exit_codes.h"

using namespace graphpipe::runtime;
using namespace graphpipe::runtime::test;

namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

/// A generated folder, and what is made of it.
class Training {
 public:
  Training(std::string folder, const std::vector<DeviceProgram>& programs, Words words)
      : folder_(std::move(folder)), programs_(programs), words_(std::move(words)) {}
  Training(const Training&) = delete;
  ~Training() { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string checkpoints() const { return path("checkpoints"); }
  std::string saved() const { return read_file(path("saved")); }

  Words words(int64_t steps, const Words& more) const {
    Words all = words_;
    all.insert(all.end(), {"--data", folder_, "--steps", std::to_string(steps), "--json", "--save", path("saved")});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  /// Rank 0's end; all must end alike.
  RunEnd run(int64_t steps, const Words& more, int exit_code = 0) const {
    fs::remove(path("saved"));
    return run_all(programs_, folder_, words(steps, more), exit_code);
  }
  const std::string& folder() const { return folder_; }
  const std::vector<DeviceProgram>& programs() const { return programs_; }

 private:
  std::string folder_;
  const std::vector<DeviceProgram>& programs_;
  Words words_;
};

void check_interrupted_run(const Training& training) {
  const RunEnd whole = training.run(5, {});
  const std::string expected = training.saved();
  REQUIRE(expected.size() > 100);
  const std::string folder = training.checkpoints();
  const RunEnd first = training.run(2, {"--checkpoint", folder});
  CHECK(checkpoint_steps(folder) == std::vector<int64_t>{2});
  const RunEnd second = training.run(5, {"--resume", folder, "--checkpoint", folder, "--checkpoint-every", "2"});
  CHECK((training.saved() == expected));
  CHECK(checkpoint_steps(folder) == std::vector<int64_t>{2, 4, 5});
  // What a median of losses is taken of is the same, too.
  const std::vector<double> all = numbers_of(whole.output, "losses");
  CHECK(read_checkpoint_record(folder + "/step-4").losses == std::vector<double>(all.begin(), all.begin() + 4));
  std::vector<double> losses = numbers_of(first.output, "losses");
  for (const double loss : numbers_of(second.output, "losses")) losses.push_back(loss);
  CHECK(losses == numbers_of(whole.output, "losses"));
  CHECK(second.output.find("\"first_step\": 3,") != std::string::npos);
}

const Words kMomentum = {"--lr", "0.1", "--momentum", "0.9"};
const Words kAdamWWords = {"--lr", "0.01"};

}  // namespace

TEST_CASE("two steps and three more are five, bit by bit, for every kind of version") {
  const ChainShape shapes[] = {
      {.stages = 3, .micro_batches = 5},
      {.versions = Versions::kVerticalSync},
      {.micro_batches = 12, .versions = Versions::kTwoBuffers, .per_update = 3},
      {.stages = 2, .micro_batches = 7, .replicas = {1, 2}},
      {.stages = 1, .micro_batches = 7, .replicas = {3}, .every_item = true},
  };
  for (const ChainShape& shape : shapes) {
    const ChainPlan plan(shape);
    check_interrupted_run(Training(make_chain_folder(shape.stages, 23), plan.programs(), kMomentum));
  }
}

TEST_CASE("two steps and three more are five, bit by bit, with replicas, shared weights and moments") {
  const PlanShape shapes[] = {
      {.micro_batch = {4, 2}, .replicas = {3, 1}},
      {.micro_batch = {4, 4}, .replicas = {2, 2}, .shared = true},
      {.micro_batch = {4, 2}, .last_frozen = true},
      {.one_device = true},
  };
  for (PlanShape shape : shapes) {
    shape.optimizer = "adamw";
    const TwoStagePlan plan(shape);
    Words words = kAdamWWords;
    if (!shape.one_device) words.insert(words.end(), {"--clip-norm", "0.2"});
    check_interrupted_run(Training(make_folder(shape.shared, 19), plan.programs(), words));
  }
}

TEST_CASE("a shuffled training goes on in its order, whole epochs or not, and in no other order") {
  const TwoStagePlan plan({.optimizer = "adamw"});
  for (const char* rule : {"wrap", "drop", "pad"}) {
    CAPTURE(rule);
    const Words words = {"--lr", "0.01", "--shuffle", "--last-batch", rule};
    const Training training(make_folder(false, 19), plan.programs(), words);
    check_interrupted_run(training);
    ProcessGroup unshuffled(plan.programs(), training.folder(),
                            {"--data", training.folder(), "--steps", "9", "--resume", training.checkpoints()});
    const RunEnd end = unshuffled.wait(60)[0];
    CHECK(end.exit_code == graphpipe::wire::kExitUsage);
    CHECK(end.errors.find("the checkpoint's run had --shuffle 1") != std::string::npos);
  }
}

TEST_CASE("another plan goes on with the weights and the optimizer's state") {
  const TwoStagePlan before({.micro_batch = {4, 2}, .replicas = {2, 1}, .optimizer = "adamw"});
  const TwoStagePlan after({.micro_batch = {2, 4}, .replicas = {1, 2}, .optimizer = "adamw"});
  const Training first(make_folder(false, 19), before.programs(), kAdamWWords);
  const std::string folder = first.checkpoints();
  first.run(3, {"--checkpoint", folder});
  const Training second(make_folder(false, 19), after.programs(), kAdamWWords);
  // The interpreter of the new plan is the reference of both.
  const RunEnd serial = run_serial_process(after.programs(), second.folder(), second.words(6, {"--resume", folder}));
  CAPTURE(serial.errors);
  REQUIRE(serial.exit_code == 0);
  const std::string expected = second.saved();
  const RunEnd pipeline = second.run(6, {"--resume", folder});
  CHECK((second.saved() == expected));
  CHECK(numbers_of(pipeline.output, "losses") == numbers_of(serial.output, "losses"));
  // The same training without a change of plan has the same numbers, but for rounding.
  const RunEnd unchanged = first.run(6, {});
  const std::vector<double> late = numbers_of(unchanged.output, "losses");
  const std::vector<double> resumed = numbers_of(pipeline.output, "losses");
  REQUIRE(resumed.size() == 3);
  for (size_t i = 0; i < 3; ++i) CHECK(resumed[i] == doctest::Approx(late[3 + i]).epsilon(1e-5));
}

TEST_CASE("without state of the optimizer, another plan that resumes is one that starts with the saved weights") {
  const ChainPlan before({.versions = Versions::kStashing}),
      after({.micro_batch = 3, .micro_batches = 4, .versions = Versions::kFlush});
  const Words plain = {"--lr", "0.2"};
  // As many samples as a step takes: every step trains on the same ones.
  const Training first(make_chain_folder(3, 12), before.programs(), plain);
  first.run(2, {"--checkpoint", first.checkpoints()});
  const Training second(make_chain_folder(3, 12), after.programs(), plain);
  fs::copy_file(first.path("saved"), second.path("weights_of_first"));
  const RunEnd fresh = second.run(3, {"--weights", second.path("weights_of_first")});
  const std::string expected = second.saved();
  const RunEnd resumed = second.run(5, {"--resume", first.checkpoints()});
  CHECK((second.saved() == expected));
  CHECK(numbers_of(resumed.output, "losses") == numbers_of(fresh.output, "losses"));
}

TEST_CASE("a run that is behind its last step writes what it has; one that is ahead of it is refused") {
  const TwoStagePlan plan({});
  const Training training(make_folder(false, 19), plan.programs(), kMomentum);
  const Words resume = {"--resume", training.checkpoints()};
  training.run(3, {"--checkpoint", training.checkpoints()});
  const std::string expected = training.saved();
  const RunEnd nothing = training.run(3, resume);
  CHECK((training.saved() == expected));
  CHECK(nothing.output.find("\"steps\": 0, \"first_step\": 4, \"losses\": []") != std::string::npos);
  const Words gradients = {"--resume", training.checkpoints(), "--save-gradients", training.path("gradients")};
  ProcessGroup without_steps(plan.programs(), training.folder(), training.words(3, gradients));
  CHECK(without_steps.wait(60)[0].errors.find("no step is left to run") != std::string::npos);
  ProcessGroup group(plan.programs(), training.folder(), training.words(2, resume));
  const RunEnd ahead = group.wait(60)[0];
  CHECK(ahead.exit_code == graphpipe::wire::kExitUsage);
  CHECK(ahead.errors.find("is of step 3, behind --steps 2") != std::string::npos);
}

namespace {

void damage(const std::string& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  REQUIRE(file.good());
  file.seekp(-3, std::ios::end);
  file.put('\x7f');
}

// Rank 0 tells why.
RunEnd refused(const Training& training, int64_t steps, const Words& more) {
  ProcessGroup group(training.programs(), training.folder(), training.words(steps, more));
  return group.wait(60)[0];
}

}  // namespace

TEST_CASE("the last whole checkpoint is taken, and damaged ones are named") {
  const TwoStagePlan plan({.optimizer = "adamw"});
  const Training training(make_folder(false, 19), plan.programs(), kAdamWWords);
  const std::string folder = training.checkpoints();
  training.run(6, {});
  const std::string expected = training.saved();
  training.run(4, {"--checkpoint", folder, "--checkpoint-every", "1", "--keep", "3"});
  REQUIRE(checkpoint_steps(folder) == std::vector<int64_t>{2, 3, 4});
  damage(folder + "/step-4/stage1.optimizer.safetensors");
  damage(folder + "/step-3/checkpoint.txt");
  const RunEnd resumed =
      training.run(6, {"--resume", folder, "--checkpoint", folder, "--checkpoint-every", "3", "--keep", "2"});
  CHECK((training.saved() == expected));
  CHECK(resumed.output.find("\"first_step\": 3,") != std::string::npos);
  CHECK(resumed.errors.find("stage1.optimizer.safetensors': the file is not the one that was written; the run goes on "
                            "from step 2") != std::string::npos);
  // The damaged ones do not count among those that are kept.
  CHECK(checkpoint_steps(folder) == std::vector<int64_t>{3, 6});
  for (const char* step : {"3", "6"}) damage(folder + "/step-" + step + "/stage0.weights.safetensors");
  const RunEnd none = refused(training, 8, {"--resume", folder, "--checkpoint", folder});
  CHECK(none.exit_code == graphpipe::wire::kExitInputRefused);
  CHECK(none.errors.find("step-6") != std::string::npos);
}

TEST_CASE("a folder of checkpoints that another run has is refused, with what to do") {
  const std::string outer = make_folder(false, 19), path = outer + "/checkpoints";
  const CheckpointFolder held(path, "model", true);
  try {
    const CheckpointFolder second(path, "model", true);
    CHECK(false);
  } catch (const RunError& error) {
    CHECK(error.diagnostic().message == "another run keeps its checkpoints in this folder");
    CHECK(error.diagnostic().hint.find("wait until that run has ended") != std::string::npos);
  }
  fs::remove_all(outer);
}

TEST_CASE("a folder of checkpoints that this user may not write into is refused before the first step") {
  const std::string outer = make_folder(false, 19), path = outer + "/checkpoints";
  { const CheckpointFolder made(path, "model", true); }
  fs::permissions(outer, fs::perms::all);
  fs::permissions(path + "/" + std::string(graphpipe::wire::kCheckpointsMark), fs::perms::all);
  fs::permissions(path, fs::perms(0555));  // of the group too, which stays root's
  const bool root = geteuid() == 0;        // who may write everywhere
  if (root) REQUIRE(seteuid(65534) == 0);
  std::string said;
  try {
    const CheckpointFolder again(path, "model", true);
  } catch (const RunError& error) {
    said = error.diagnostic().message;
  }
  if (root) REQUIRE(seteuid(0) == 0);
  CHECK(said == "cannot write into the folder: Permission denied");
  fs::permissions(path, fs::perms::owner_all);
  { const CheckpointFolder third(path, "model", true); }
  fs::remove_all(outer);
}

TEST_CASE("folders of other things, of other models and with checkpoints are not written to") {
  const TwoStagePlan plan({});
  const Training training(make_folder(false, 19), plan.programs(), kMomentum);
  const auto said = [&](const Words& more, const char* words) {
    const RunEnd end = refused(training, 2, more);
    CAPTURE(end.errors);
    CHECK(end.exit_code == graphpipe::wire::kExitUsage);
    CHECK(end.errors.find(words) != std::string::npos);
  };
  said({"--checkpoint", training.folder()}, "is no folder of checkpoints");
  said({"--resume", training.checkpoints()}, "the folder holds no checkpoint");
  CHECK(!fs::exists(training.checkpoints()));
  fs::create_symlink(training.path("nowhere"), training.path("link"));
  CHECK(refused(training, 5, {"--checkpoint", training.path("link")}).errors.find("link that leads nowhere") !=
        std::string::npos);
  // Both flags and no checkpoint: a start that may be repeated.
  training.run(1, {"--resume", training.checkpoints(), "--checkpoint", training.checkpoints()});
  said({"--checkpoint", training.checkpoints()}, "the folder holds checkpoints already, up to step 1");
  const std::string cure = "name " + training.checkpoints() + ", of which the last one is taken";
  for (const char* one : {"/step-1", "/step-1/", "/step-1/."})
    said({"--resume", training.checkpoints() + one}, cure.c_str());
  const TwoStagePlan other_plan({.shared = true});
  const Training other(make_folder(true, 19), other_plan.programs(), kMomentum);
  const RunEnd end = refused(other, 2, {"--checkpoint", training.checkpoints()});
  CHECK(end.errors.find("holds checkpoints of another model") != std::string::npos);
  const RunEnd resumed = refused(other, 2, {"--resume", training.checkpoints()});
  CHECK(resumed.errors.find("the checkpoint is of another model") != std::string::npos);
}

TEST_CASE("a run with another seed, other data or another optimizer is refused; the first two unless it says so") {
  const TwoStagePlan plan({}), adamw({.optimizer = "adamw"});
  const Training training(make_folder(false, 19), plan.programs(), kMomentum);
  training.run(1, {"--checkpoint", training.checkpoints()});
  const Words resume = {"--resume", training.checkpoints()};
  const Words reseed = {"--resume", training.checkpoints(), "--seed", "77"};
  CHECK(refused(training, 2, reseed).errors.find("this one has 77") != std::string::npos);
  training.run(2, {"--resume", training.checkpoints(), "--seed", "77", "--resume-changed"});
  const Training more_data(make_folder(false, 20), plan.programs(), kMomentum);
  CHECK(refused(more_data, 2, resume).errors.find("trained on other data") != std::string::npos);
  more_data.run(2, {"--resume", training.checkpoints(), "--resume-changed"});
  const Training other(make_folder(false, 19), adamw.programs(), kAdamWWords);
  CHECK(refused(other, 2, {"--resume", training.checkpoints(), "--resume-changed"})
            .errors.find("the checkpoint holds the state of 'sgd', and the plan trains with adamw") !=
        std::string::npos);
}

TEST_CASE("a plan with another batch takes other samples in a step, and is refused unless the run says so") {
  const ChainPlan plan({.stages = 2, .micro_batches = 4}), larger({.stages = 2, .micro_batches = 8});
  const Training training(make_chain_folder(2, 23), plan.programs(), kMomentum);
  training.run(1, {"--checkpoint", training.checkpoints()});
  const Training other(make_chain_folder(2, 23), larger.programs(), kMomentum);
  const Words resume = {"--resume", training.checkpoints()};
  CHECK(refused(other, 2, resume).errors.find("had steps of 8 samples, this plan has steps of 16") !=
        std::string::npos);
  other.run(2, {"--resume", training.checkpoints(), "--resume-changed"});
  CHECK(read_checkpoint_record(training.checkpoints() + "/step-1").batch == 8);
}

TEST_CASE("asked to end, a run keeps a checkpoint on all ranks and goes on from it to the same bits") {
  const ChainPlan plan({.stages = 3});
  const Training training(make_chain_folder(3, 23), plan.programs(), kMomentum);
  constexpr int64_t kSteps = 12000;  // still running when a busy machine comes to ask
  training.run(kSteps, {});
  const std::string expected = training.saved();
  const Words words = {"--checkpoint", training.checkpoints(), "--resume", training.checkpoints()};
  ProcessGroup group(plan.programs(), training.folder(), training.words(kSteps, words));
  const std::string mark = training.checkpoints() + "/graphpipe-checkpoints.txt";
  while (!fs::exists(mark)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  // Rank 1 alone is asked, for a checkpoint, and then to end.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  group.kill_rank(1, SIGUSR1);
  while (checkpoint_steps(training.checkpoints()).empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  group.kill_rank(1, SIGTERM);
  const std::vector<RunEnd> ends = group.wait(60);
  for (const RunEnd& end : ends) CHECK(end.exit_code == graphpipe::wire::kExitPartial);
  CHECK(ends[0].output.find("\"complete\": false") != std::string::npos);
  CHECK(checkpoint_steps(training.checkpoints()).size() == 2);
  training.run(kSteps, words);
  CHECK((training.saved() == expected));
}
