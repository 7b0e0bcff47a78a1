// Whatever dies or stops in the middle of a run, the run ends soon, says who it was, and leaves nothing behind.

#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/e2e/background_run.h"
#include "tests/e2e/pipeline_run.h"

using namespace graphpipe::tests;

namespace {

std::set<std::string> shared_memory_files() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    const std::string name = entry.path().filename();
    if (name.find("graphpipe") != std::string::npos || name.find("torch") != std::string::npos) names.insert(name);
  }
  return names;
}

// Three devices in the middle of a run that would take for ever: at another learning rate its loss becomes infinite.
struct Endless {
  Endless()
      : run({GRAPHPIPE_BINARY_DIR "/bin/graphpipe", "run", three_stage_folder(), "--steps", "1000000000", "--lr",
             "1e-12", "--stall-timeout", "2"},
            work_folder("failures.talk")) {
    REQUIRE(run.says("step 3 of", 60));
    devices = run.devices();
    REQUIRE(devices.size() == 3);
  }
  /// Ends with this code, soon, and nothing stays.
  void check_end(int code) {
    CHECK(run.wait(15) == code);
    CHECK(all_gone(devices, 5));
    CHECK(shared_memory_files() == files_before);
  }
  /// The message, without the lines of the steps.
  std::string message() const {
    const std::string talk = run.talk();
    const size_t at = talk.find("error[");
    return at == std::string::npos ? "" : talk.substr(at);
  }

  std::set<std::string> files_before = shared_memory_files();
  BackgroundRun run;
  std::vector<pid_t> devices;
};

void check_has(const std::string& text, const std::string& part) {
  CAPTURE(text);
  CAPTURE(part);
  CHECK(text.find(part) != std::string::npos);
}

/// Which action, and of which micro-batch: that of all of them is the update.
void check_names_action(const std::string& text) {
  check_has(text, text.find("STEP of samples ") == std::string::npos ? "(micro-batch " : "step ");
}

}  // namespace

TEST_CASE("a device that is killed: exit code 6, and the message names its stage, action and micro-batch") {
  // Within a second, unless a busy machine holds the others up: then one more kill, of up to nine, shows it.
  double soonest = INFINITY;
  for (size_t kills = 0; kills < 3 || (kills < 9 && soonest > 1); ++kills) {
    const size_t victim = kills % 3;
    CAPTURE(victim);
    Endless endless;
    const auto killed = std::chrono::steady_clock::now();
    kill(endless.devices[victim], SIGKILL);
    endless.check_end(6);
    soonest = std::min(soonest, std::chrono::duration<double>(std::chrono::steady_clock::now() - killed).count());
    const std::string number = std::to_string(victim);
    check_has(endless.message(), "rank " + number + " (stage " + number + ") died");
    check_names_action(endless.message());
    check_has(endless.message(), "step ");
    check_has(endless.run.talk(), "device " + number + " was ended by signal 9");
  }
  CHECK(soonest < 1);
}

TEST_CASE("a device that makes no progress for longer than the stall timeout") {
  Endless endless;
  kill(endless.devices[1], SIGSTOP);
  endless.check_end(6);
  check_has(endless.message(), "rank 1 (stage 1) made no progress for 2 s");
  check_names_action(endless.message());
}

TEST_CASE("graphpipe run itself is killed: its devices end with it") {
  Endless endless;
  kill(endless.run.pid(), SIGKILL);
  endless.check_end(-SIGKILL);
}

TEST_CASE("Ctrl-C: exit code 130") {
  Endless endless;
  kill(-endless.run.pid(), SIGINT);  // a terminal's reaches the whole group
  endless.check_end(130);
}

TEST_CASE("a verification that is asked to terminate says so in its report") {
  BackgroundRun verify({GRAPHPIPE_BINARY_DIR "/bin/graphpipe", "verify", three_stage_folder(), "--steps", "1000000",
                        "--lr", "1e-12", "--json"},
                       work_folder("failures.verify"));
  std::vector<pid_t> devices;
  for (int round = 0; round < 6000 && devices.size() < 3; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    devices = verify.devices();
  }
  REQUIRE(devices.size() == 3);
  kill(verify.pid(), SIGTERM);
  CHECK(verify.wait(15) == 143);
  check_has(verify.talk(), "{\"code\": \"interrupted\"");
  CHECK(all_gone(devices, 5));
}

TEST_CASE("a request to terminate: exit code 143") {
  Endless endless;
  kill(endless.run.pid(), SIGTERM);
  endless.check_end(143);
}
