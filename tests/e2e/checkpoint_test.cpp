// Trainings that stop and go on: asked to, killed, and by themselves.

#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/e2e/background_run.h"
#include "tests/e2e/pipeline_run.h"

using namespace graphpipe::tests;

namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

const std::string kProgram = GRAPHPIPE_BINARY_DIR "/bin/graphpipe";

/// A folder of the test's own for checkpoints and weights.
struct Place {
  explicit Place(const std::string& name) : folder(work_folder(name)) {
    fs::remove_all(folder);
    fs::create_directories(folder);
  }
  std::string checkpoints() const { return folder + "/checkpoints"; }
  std::string weights(const std::string& name) const { return folder + "/" + name + ".safetensors"; }
  /// `graphpipe run` of the three stages, with momentum, which a checkpoint must keep.
  Words run(int steps, const Words& more) const {
    Words words = {"run", three_stage_folder(), "--steps", std::to_string(steps), "--momentum", "0.9", "--lr", "1e-7"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  Words with_program(int steps, const Words& more) const {
    Words words = run(steps, more);
    words.insert(words.begin(), kProgram);
    return words;
  }
  std::string folder;
};

}  // namespace

TEST_CASE("four steps and six more are ten, bit by bit") {
  const Place place("checkpoint");
  const std::string whole = graphpipe_output(place.run(10, {"--json", "--save", place.weights("whole")}));
  graphpipe_output(place.run(4, {"--checkpoint", place.checkpoints(), "--checkpoint-every", "2"}));
  const std::string rest =
      graphpipe_output(place.run(10, {"--json", "--resume", place.checkpoints(), "--save", place.weights("resumed")}));
  CHECK(same_bytes(place.weights("resumed"), place.weights("whole")));
  const std::vector<double> all = losses_of(whole);
  CHECK(losses_of(rest) == std::vector<double>(all.begin() + 4, all.end()));
  CHECK(rest.find("\"first_step\": 5,") != std::string::npos);
  CHECK(fs::exists(place.checkpoints() + "/step-4/checkpoint.txt"));
}

TEST_CASE("Ctrl-C keeps a checkpoint, and the same command goes on from it") {
  const Place place("interrupted");
  constexpr int kSteps = 3000;
  graphpipe_output(place.run(kSteps, {"--save", place.weights("whole")}));
  const Words words = {"--checkpoint", place.checkpoints(),     "--resume", place.checkpoints(),
                       "--save",       place.weights("resumed")};
  {
    BackgroundRun run(place.with_program(kSteps, words), place.folder + "/talk");
    REQUIRE(run.says("step 3 of", 60));
    kill(run.pid(), SIGINT);
    CHECK(run.wait(30) == 130);
    CHECK(run.talk().find("the run was asked to end, after step") != std::string::npos);
  }
  CHECK(!fs::exists(place.weights("resumed")));
  graphpipe_output(place.run(kSteps, words));
  CHECK(same_bytes(place.weights("resumed"), place.weights("whole")));
}

TEST_CASE("asked to end, all processes of the run at once, it keeps a checkpoint as well; asked again, it ends") {
  for (const int signal : {SIGTERM, SIGHUP}) {
    CAPTURE(signal);
    const Place place("interrupted_group");
    BackgroundRun run(place.with_program(1'000'000, {"--checkpoint", place.checkpoints()}), place.folder + "/talk");
    REQUIRE(run.says("step 3 of", 60));
    kill(-run.pid(), signal);  // as a shell's `kill %1`, `timeout` and a terminal that closes do
    CHECK(run.wait(30) == 128 + signal);
    CHECK(run.talk().find("the run was asked to end, after step") != std::string::npos);
    CHECK(fs::exists(place.checkpoints()));
    CHECK(std::ranges::any_of(fs::directory_iterator(place.checkpoints()), [](const fs::directory_entry& entry) {
      return entry.path().filename().string().starts_with("step-");
    }));
  }
}

TEST_CASE("--restarts: before a checkpoint of its own, a run begins again from the one that it resumed") {
  const Place place("restarts_resumed");
  constexpr int kSteps = 3000;
  graphpipe_output(place.run(4, {"--checkpoint", place.checkpoints()}));
  const std::string own = place.folder + "/own";
  BackgroundRun run(
      place.with_program(kSteps, {"--resume", place.checkpoints(), "--checkpoint", own, "--restarts", "1", "--json"}),
      place.folder + "/talk");
  std::vector<pid_t> devices;
  for (int round = 0; round < 6000 && devices.size() < 3; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    devices = run.devices();
  }
  REQUIRE(devices.size() == 3);
  kill(devices[1], SIGKILL);
  CHECK(run.wait(120) == 0);
  CHECK(run.talk().find("restarts left: 0\n") != std::string::npos);
  CHECK(run.talk().find("\"first_step\": 5,") != std::string::npos);
}

TEST_CASE("--restarts: a run whose device was killed starts again by itself") {
  const Place place("restarts");
  constexpr int kSteps = 3000;
  const std::string whole = graphpipe_output(place.run(kSteps, {"--save", place.weights("whole"), "--json"}));
  BackgroundRun run(place.with_program(kSteps, {"--checkpoint", place.checkpoints(), "--checkpoint-every", "50",
                                                "--restarts", "1", "--save", place.weights("restarted"), "--json"}),
                    place.folder + "/talk");
  REQUIRE(run.says("step 60 of", 60));
  const std::vector<pid_t> devices = run.devices();
  REQUIRE(devices.size() == 3);
  kill(devices[1], SIGKILL);
  CHECK(run.wait(120) == 0);
  CHECK(run.talk().find("the run starts again from its last checkpoint; restarts left: 0") != std::string::npos);
  CHECK(same_bytes(place.weights("restarted"), place.weights("whole")));
  // All steps, also those before the checkpoint that it started again from.
  const std::string talk = run.talk(), end = talk.substr(talk.find("{\"schema\"")),
                    result = end.substr(0, end.find('\n'));
  CHECK(losses_of(result) == losses_of(whole));
  CHECK(result.find("\"first_step\": 1,") != std::string::npos);
}
