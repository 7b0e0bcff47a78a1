// Batches that a Python program feeds: the same training as from files, and clear ends where the feeder fails.

#include <doctest/doctest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "driver/launch/process.h"
#include "tests/e2e/background_run.h"
#include "tests/e2e/pipeline_run.h"

using namespace graphpipe;
using namespace graphpipe::tests;

namespace {

namespace fs = std::filesystem;

// A feeder in a process of its own, with a socket of the test's own.
struct Feeder {
  Feeder(const std::string& name, std::vector<std::string> how)
      : socket((fs::temp_directory_path() / ("graphpipe-feed-" + name + "-" + std::to_string(getpid()))).string()),
        process(words(socket, std::move(how)), work_folder("feed_" + name)) {
    for (int i = 0; i < 1000 && !fs::exists(socket); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    REQUIRE(fs::exists(socket));
  }
  ~Feeder() { fs::remove(socket); }
  static std::vector<std::string> words(const std::string& socket, std::vector<std::string> how) {
    std::vector<std::string> all = {"python3", GRAPHPIPE_SOURCE_DIR "/tests/e2e/feed_files.py", socket,
                                    read_reference("dlrm").folder + "/data"};
    all.insert(all.end(), how.begin(), how.end());
    return all;
  }
  std::string socket;
  BackgroundRun process;
};

struct EndedFeed {
  int code = 0;
  std::string output;
  size_t count(const std::string& part) const {
    size_t found = 0;
    for (size_t at = output.find(part); at != std::string::npos; at = output.find(part, at + 1)) ++found;
    return found;
  }
};

EndedFeed run_fed(const std::string& socket, std::vector<std::string> flags = {}, const std::string& steps = "6") {
  std::vector<std::string> words = {
      GRAPHPIPE_BINARY_DIR "/bin/graphpipe", "run", three_stage_folder(), "--feed", socket, "--steps", steps};
  words.insert(words.end(), flags.begin(), flags.end());
  const auto finished = driver::run_and_collect({.arguments = words});
  REQUIRE(finished.ok());
  return {finished->ending.exit_code, finished->output};
}

}  // namespace

TEST_CASE("a run that is fed trains as one that reads the same samples from files") {
  const std::string weights = work_folder("feed.safetensors"), files = work_folder("feed_files.safetensors");
  const std::string data = read_reference("dlrm").folder + "/data";
  const Feeder feeder("good", {"good"});
  const std::string fed = graphpipe_output(
      {"run", three_stage_folder(), "--feed", feeder.socket, "--steps", "6", "--json", "--quiet", "--save", weights});
  const std::string read = graphpipe_output(
      {"run", three_stage_folder(), "--data", data, "--steps", "6", "--json", "--quiet", "--save", files});
  CHECK(losses_of(fed) == losses_of(read));
  CHECK(same_bytes(weights, files));
  // A run that goes on asks for its first step.
  const std::string checkpoints = work_folder("feed_checkpoints"), again = work_folder("feed_again.safetensors");
  fs::remove_all(checkpoints);
  const Feeder before("before", {"good"}), after("after", {"good"});
  REQUIRE(run_fed(before.socket, {"--checkpoint", checkpoints}, "3").code == 0);
  const EndedFeed resumed = run_fed(after.socket, {"--resume", checkpoints, "--save", again});
  CAPTURE(resumed.output);
  REQUIRE(resumed.code == 0);
  CHECK(resumed.count("step 4 of 6") == 1);
  CHECK(resumed.count("step 3 of 6") == 0);
  CHECK(same_bytes(again, files));
}

TEST_CASE("a run that goes on notices that the feeder has other data, by the name that the feeder gives them") {
  const std::string checkpoints = work_folder("feed_named_checkpoints");
  fs::remove_all(checkpoints);
  const auto resumed = [&](const std::string& name, std::vector<std::string> more) {
    const Feeder feeder("named", {"good", "0", name});
    more.insert(more.end(), {"--resume", checkpoints});
    return run_fed(feeder.socket, std::move(more));
  };
  {
    const Feeder first("named", {"good", "0", "clicks of may"});
    REQUIRE(run_fed(first.socket, {"--checkpoint", checkpoints}, "3").code == 0);
  }
  const EndedFeed other = resumed("clicks of june", {});
  CAPTURE(other.output);
  CHECK(other.code == 2);
  // Of rank 0, and again where the others say why they end.
  CHECK(other.count("other data than those that the feeder calls 'clicks of june'") >= 1);
  CHECK(resumed("clicks of june", {"--resume-changed"}).code == 0);
  CHECK(resumed("clicks of may", {}).code == 0);
}

TEST_CASE("a feeder that ends, by itself or killed, ends the run with one error that names it") {
  {
    const Feeder feeder("few", {"good", "3"});
    const EndedFeed end = run_fed(feeder.socket);
    CAPTURE(end.output);
    CHECK(end.code == 6);
    CHECK(end.count("error[") == 1);
    CHECK(end.count(feeder.socket) >= 1);
    CHECK(end.count("the feeder has no batch for step 4") >= 1);
  }
  {
    // What was trained is kept, and evaluated, as after a last step that was known to be one.
    const std::string whole = work_folder("feed_whole.safetensors"), again = work_folder("feed_continued.safetensors");
    const std::string checkpoints = work_folder("feed_ended_checkpoints"),
                      data = read_reference("dlrm").folder + "/data";
    fs::remove_all(checkpoints);
    const Feeder all("all", {"good"}), few("kept", {"good", "3"}), rest("rest", {"good"});
    REQUIRE(run_fed(all.socket, {"--save", whole}).code == 0);
    const EndedFeed end = run_fed(few.socket, {"--checkpoint", checkpoints, "--eval-data", data});
    CAPTURE(end.output);
    CHECK(end.code == 6);
    CHECK(end.count("evaluation after step 3") == 1);
    const EndedFeed resumed = run_fed(rest.socket, {"--resume", checkpoints, "--save", again});
    CHECK(resumed.code == 0);
    CHECK(resumed.count("step 4 of 6") == 1);
    CHECK(same_bytes(again, whole));
  }
  const Feeder feeder("killed", {"ends", "3"});
  const EndedFeed end = run_fed(feeder.socket);
  CAPTURE(end.output);
  CHECK(end.code == 6);
  CHECK(end.count("error[") == 1);
  // Whether it is missed as it reads or as it is asked for more.
  CHECK(end.count("the feeder ended before it sent the batch of step") + end.count("the feeder has ended") == 1);
}

TEST_CASE("batches that do not fit are refused by the feeder, ids out of bounds by the run") {
  {
    const Feeder feeder("shape", {"wrong-shape"});
    const EndedFeed end = run_fed(feeder.socket);
    CHECK(end.code == 6);
    CHECK(feeder.process.talk().find("; the run takes ") != std::string::npos);
  }
  const Feeder feeder("id", {"wrong-id"});
  const EndedFeed end = run_fed(feeder.socket);
  CAPTURE(end.output);
  CHECK(end.code == 3);
  CHECK(end.count("of the batch of step 2") >= 1);
  CHECK(end.count("is 1099511627776; the model takes from") >= 1);
}

TEST_CASE("nothing that a feeder offers is believed before it is checked") {
  for (const std::string how : {"garbage", "small", "unsealed"}) {
    CAPTURE(how);
    const Feeder feeder(how, {how});
    const EndedFeed end = run_fed(feeder.socket);
    CAPTURE(end.output);
    CHECK(end.code == 6);
    CHECK(end.count("error[peer-failed]") == 1);
    CHECK(end.count(how == "garbage" ? "answers in another protocol" : "not sealed against shrinking, or too small") >=
          1);
  }
  const EndedFeed nobody = run_fed(work_folder("feed_nobody"));
  CAPTURE(nobody.output);
  CHECK(nobody.code == 3);
  CHECK(nobody.count("no feeder answers at this socket") >= 1);
  const EndedFeed both = run_fed("x", {"--data", read_reference("dlrm").folder + "/data"});
  CHECK(both.code == 2);
}
