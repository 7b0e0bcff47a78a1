// A peer that dies or stalls ends the run, soon and by name; nothing hangs and nothing stays behind.

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "runtime/error.h"
#include "runtime/executor/channels.h"
#include "runtime/io/folder.h"
#include "runtime/launch/rendezvous.h"
#include "runtime/launch/run_main.h"
#include "tests/runtime/run_programs.h"
#include "tests/runtime/two_stage_plan.h"

using namespace graphpipe::runtime;
using namespace graphpipe::runtime::test;

namespace {

// Stage functions that misbehave at the second step, in the process of their rank.
StageFunction real_forward = nullptr;
void dying_forward(const StageArguments& arguments) {
  if (arguments.step == 1 && arguments.first_sample == 4) raise(SIGKILL);
  real_forward(arguments);
}
void sleeping_forward(const StageArguments& arguments) {
  if (arguments.step == 1 && arguments.first_sample == 4) std::this_thread::sleep_for(std::chrono::seconds(30));
  real_forward(arguments);
}
// Less than the time-out each, more than it together.
void slow_forward(const StageArguments& arguments) {
  if (arguments.step == 1) std::this_thread::sleep_for(std::chrono::milliseconds(250));
  real_forward(arguments);
}
void throwing_forward(const StageArguments& arguments) {
  if (arguments.step == 1 && arguments.first_sample == 4) throw std::runtime_error("index out of range");
  real_forward(arguments);
}

// A plan whose stage 1 has another forward.
struct Misbehaving {
  explicit Misbehaving(StageFunction forward, const PlanShape& shape = {})
      : plan(shape), entry(*plan.programs()[1].stages[0]) {
    real_forward = entry.forward;
    entry.forward = forward;
    held[0] = &entry;
    programs = plan.programs();
    programs[1].stages = held;
  }
  TwoStagePlan plan;
  StageEntry entry;
  const StageEntry* held[1];
  std::vector<DeviceProgram> programs;
};

std::vector<std::string> files_in_shared_memory() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
    if (entry.path().string().find("graphpipe") != std::string::npos) names.push_back(entry.path());
  return names;
}

struct Ended {
  std::vector<RunEnd> ends;
  double seconds;
};

Ended run_misbehaving(StageFunction forward, const std::string& transport) {
  const std::string folder = make_folder(false, 16);
  const Misbehaving bad(forward);
  const auto start = std::chrono::steady_clock::now();
  ProcessGroup group(bad.programs, folder,
                     {"--data", folder, "--steps", "3", "--stall-timeout", "1", "--transport", transport});
  Ended ended{group.wait(10), std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()};
  std::filesystem::remove_all(folder);
  return ended;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a limit of file sizes is named, and ends no rank by a signal") {
  const std::string folder = make_folder(false, 8);
  const TwoStagePlan plan({});
  ProcessGroup group(plan.programs(), folder, {"--data", folder, "--transport", "shm"}, [](size_t rank) {
    const rlimit limit{4096, 4096};
    if (rank == 1) setrlimit(RLIMIT_FSIZE, &limit);
  });
  // The other rank may find only that its peer has gone.
  int named = 0;
  for (const RunEnd& end : group.wait(30)) {
    CAPTURE(end.exit_code);
    CAPTURE(end.errors);
    CHECK((end.exit_code == 5 || end.exit_code == 6));
    named += end.errors.find("File too large; raise the limit of file sizes (ulimit -f)") != std::string::npos;
  }
  CHECK(named >= 1);
  std::filesystem::remove_all(folder);
}

TEST_CASE("a rank that is killed ends the run: its stage, action and micro-batch are named") {
  const Ended ended = run_misbehaving(dying_forward, "shm");
  CHECK(ended.ends[1].exit_code == -1);
  CHECK(ended.ends[0].exit_code == 6);
  CAPTURE(ended.ends[0].errors);
  CHECK(has(ended.ends[0].errors, "rank 1 (stage 1) died"));
  CHECK(has(ended.ends[0].errors, "F of samples [4,6) (micro-batch 2) of stage 1, replica 0, step 2"));
  CHECK(files_in_shared_memory().empty());
}

TEST_CASE("a rank that is killed ends the run over TCP too") {
  const Ended ended = run_misbehaving(dying_forward, "tcp");
  CHECK(ended.ends[0].exit_code == 6);
  CAPTURE(ended.ends[0].errors);
  CHECK(has(ended.ends[0].errors, "rank 1 (stage 1)"));
  CHECK(has(ended.ends[0].errors, "step 2"));
}

TEST_CASE("a rank that waits for longer than the time-out, while its peer goes from action to action, is not stalled") {
  for (const std::string transport : {"shm", "tcp"}) {
    CAPTURE(transport);
    const Misbehaving slow(slow_forward, {.micro_batch = {1, 1}});
    const std::string folder = make_folder(false, 16);
    ProcessGroup group(slow.programs, folder,
                       {"--data", folder, "--steps", "2", "--stall-timeout", "1", "--transport", transport});
    for (const RunEnd& end : group.wait(30)) {
      CAPTURE(end.errors);
      CHECK(end.exit_code == 0);
    }
    std::filesystem::remove_all(folder);
  }
}

TEST_CASE("a rank without progress ends the run") {
  for (const std::string transport : {"shm", "tcp"}) {
    CAPTURE(transport);
    const Misbehaving bad(sleeping_forward);
    const std::string folder = make_folder(false, 16);
    ProcessGroup group(bad.programs, folder,
                       {"--data", folder, "--steps", "3", "--stall-timeout", "1", "--transport", transport});
    std::thread stop([&] {  // the launcher ends the others; here the sleeper is the one left
      std::this_thread::sleep_for(std::chrono::milliseconds(2200));
      group.kill_rank(1, SIGKILL);
    });
    const std::vector<RunEnd> ends = group.wait(10);
    stop.join();
    CAPTURE(ends[0].errors);
    CHECK(ends[0].exit_code == 6);
    CHECK(has(ends[0].errors, "rank 1 (stage 1) made no progress for 1 s"));
    CHECK(has(ends[0].errors, "F of samples [4,6) (micro-batch 2) of stage 1, replica 0, step 2"));
    std::filesystem::remove_all(folder);
  }
}

namespace {

// A peer that says it waits for this rank, and nothing ever moves.
class MutualWait : public Transport {
 public:
  explicit MutualWait(bool peer_beats) : peer_beats_(peer_beats) {}
  const char* name() const override { return "mutual wait"; }
  void post_send(size_t, Message&) override {}
  void post_receive(size_t, Message&) override {}
  bool progress() override { return false; }
  void wait(std::chrono::microseconds) override { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }
  std::optional<Activity> activity_of(int32_t rank) const override {
    return Activity{.stage = rank, .waits_for = 1 - rank, .beats = peer_beats_ ? ++beats_ : 0};
  }

 private:
  bool peer_beats_;
  mutable int64_t beats_ = 0;
};

std::string stall_message(bool peer_beats) {
  TwoStagePlan plan({});
  Channels channels(plan.table(), 0, {}, std::make_unique<MutualWait>(peer_beats), 0.05);
  try {
    channels.wait_until([] { return false; }, [] { return 1; });
  } catch (const RunError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a rank that was stopped while it waited is told from ranks that wait for each other") {
  CHECK(has(stall_message(false), "rank 1 (stage 1) made no progress"));
  CHECK(has(stall_message(true), "the ranks wait for each other"));
}

TEST_CASE("after the last step a wait has no limit") {
  TwoStagePlan plan({});
  Channels channels(plan.table(), 0, {}, std::make_unique<MutualWait>(false), 0.05);
  channels.wait_without_limit();
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  CHECK_NOTHROW(channels.wait_until([&] { return std::chrono::steady_clock::now() > end; }, [] { return 1; }));
}

TEST_CASE("the time-out is the user's, else 10 s or what the plan's longest action needs") {
  PlanTable plan;
  CHECK(stall_seconds(plan, {}) == 10);
  plan.longest_action_ms = 1500;
  CHECK(stall_seconds(plan, {}) == 10);
  plan.longest_action_ms = 4000;
  CHECK(stall_seconds(plan, {}) == 20);
  CHECK(stall_seconds(plan, {.launch = {.stall_timeout = 3}}) == 3);
}

TEST_CASE("an exception names the action; the other ranks of the launcher leave it at that") {
  const Ended ended = run_misbehaving(throwing_forward, "shm");
  CAPTURE(ended.ends[0].errors);
  CAPTURE(ended.ends[1].errors);
  CHECK(ended.ends[0].exit_code == 6);
  CHECK(ended.ends[1].exit_code == 6);
  CHECK(has(ended.ends[1].errors, "at F of samples [4,6) (micro-batch 2) of stage 1, replica 0, step 2"));
  CHECK(has(ended.ends[1].errors, "index out of range"));
  CHECK(ended.ends[0].errors.empty());
}

TEST_CASE("ranks whose programs do not fit each other end the run") {
  const std::string folder = make_folder(false, 16);
  const TwoStagePlan plan({}), other({.batch = 6});
  std::vector<DeviceProgram> programs = plan.programs();
  programs[1] = other.programs()[1];
  ProcessGroup group(programs, folder, {"--data", folder, "--stall-timeout", "1"});
  const std::vector<RunEnd> ends = group.wait(20);
  CHECK(ends[0].exit_code == 6);
  CHECK(ends[1].exit_code == 6);
  std::filesystem::remove_all(folder);
}

TEST_CASE("a folder that is not the one the program was made from is refused") {
  const TwoStagePlan plan({.one_device = true});
  const std::string folder = make_folder(false, 16);
  const auto run = [&] { return run_serial_process(plan.programs(), folder, {"--data", folder}); };
  CHECK(run().exit_code == 0);
  const std::string weights = folder + "/weights.safetensors";
  std::string bytes = read_file(weights);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  std::ofstream(weights, std::ios::binary) << bytes;
  const RunEnd changed = run();
  CHECK(changed.exit_code == 3);
  CHECK(has(changed.errors, "weights.safetensors"));
  std::filesystem::remove_all(folder);
}

TEST_CASE("the ranks beside the first one of a host compare the size of the weights only") {
  const std::string folder = make_folder(false, 16);
  std::string bytes = read_file(folder + "/weights.safetensors");
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  std::ofstream(folder + "/weights.safetensors", std::ios::binary) << bytes;
  CHECK_NOTHROW(check_manifest(folder, kFolderDigest, FolderCheck::kSizeOfWeights));
  CHECK_THROWS_AS(check_manifest(folder, kFolderDigest, FolderCheck::kWeights), RunError);
  std::ofstream(folder + "/weights.safetensors", std::ios::binary | std::ios::app) << "x";
  CHECK_THROWS_AS(check_manifest(folder, kFolderDigest, FolderCheck::kSizeOfWeights), RunError);
  std::filesystem::remove_all(folder);
}

TEST_CASE("of the ranks of a host the first one checks the folder, and each one where nobody knows the hosts") {
  const auto is_first = [](graphpipe::wire::RunOptions options) {
    options.launch.master_port = 29500;
    return find_rendezvous(options, options.launch.rank, 4).first_on_host;
  };
  CHECK(is_first({.launch = {.rank = 0, .parent = 1}}));
  CHECK_FALSE(is_first({.launch = {.rank = 3, .parent = 1}}));
  CHECK(is_first({.launch = {.rank = 3}}));
}

TEST_CASE("a port that no socket can have is refused") {
  setenv("MASTER_PORT", "70000", 1);
  CHECK_THROWS_AS(find_rendezvous({.launch = {.rank = 0}}, 0, 2), RunError);
  setenv("MASTER_PORT", "65535", 1);
  CHECK(find_rendezvous({.launch = {.rank = 0}}, 0, 2).port == 65535);
  unsetenv("MASTER_PORT");
}

TEST_CASE("a file that cannot be written ends the run before its first step") {
  const TwoStagePlan plan({}), serial({.one_device = true});
  const std::string folder = make_folder(false, 16);
  for (const std::string flag : {"--save", "--save-gradients", "--trace"}) {
    for (const std::string& path : {folder + "/missing/file", folder}) {
      const RunEnd end = run_serial_process(serial.programs(), folder, {"--data", folder, flag, path});
      CAPTURE(end.errors);
      CHECK(end.exit_code != 0);
      CHECK(has(end.errors, flag == "--trace" ? "" : "cannot create the file"));
      CHECK_FALSE(has(end.output, "step 1 of"));
    }
    ProcessGroup group(plan.programs(), folder,
                       {"--data", folder, "--stall-timeout", "1", flag, folder + "/missing/file"});
    const std::vector<RunEnd> ends = group.wait(20);
    CHECK(ends[1].exit_code == 6);
    CHECK(has(ends[0].errors, "cannot create the file"));
    CHECK_FALSE(has(ends[0].output, "step 1 of"));
  }
  std::filesystem::remove_all(folder);
}
