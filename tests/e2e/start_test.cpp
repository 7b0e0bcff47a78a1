// Runs that fail before their first step, and what other users of the host see of a run.

#include <doctest/doctest.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/e2e/background_run.h"
#include "tests/e2e/pipeline_run.h"

using namespace graphpipe::tests;
using nlohmann::json;

namespace {

namespace fs = std::filesystem;

constexpr int kNobody = 65534;

// A time-out of the training that would hide a start-up without one of its own. It goes on until it is ended: drawn
// labels let the loss fall without bound, so a learning rate to speak of would end it at the first infinity.
std::vector<std::string> run_words(const std::string& folder, const std::vector<std::string>& flags) {
  std::vector<std::string> words{GRAPHPIPE_BINARY_DIR "/bin/graphpipe",
                                 "run",
                                 folder,
                                 "--steps",
                                 "1000000000",
                                 "--lr",
                                 "1e-12",
                                 "--stall-timeout",
                                 "600"};
  words.insert(words.end(), flags.begin(), flags.end());
  return words;
}

struct EndedRun {
  int code;
  double seconds;
  std::string first_error;  // line
  std::string talk;
};

std::string first_error_of(const std::string& talk) {
  const size_t at = talk.find("error[");
  return at == std::string::npos ? "" : talk.substr(at, talk.find('\n', at) - at);
}

// Does `fault` as soon as all three devices have been started.
EndedRun run_with(const std::string& folder, const std::function<void(const std::vector<pid_t>&)>& fault) {
  const auto start = std::chrono::steady_clock::now();
  BackgroundRun run(run_words(folder, {}), work_folder("start.talk"));
  while (fault && run.devices().size() < 3) std::this_thread::yield();
  const std::vector<pid_t> devices = run.devices();
  if (fault) fault(devices);
  EndedRun ended{.code = run.wait(60), .seconds = 0, .first_error = {}, .talk = run.talk()};
  ended.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  ended.first_error = first_error_of(ended.talk);
  CHECK(all_gone(devices, 5));
  return ended;
}

std::string copy_of_folder() {
  const std::string copy = work_folder("start_copy");
  fs::remove_all(copy);
  fs::copy(three_stage_folder(), copy, fs::copy_options::recursive);
  return copy;
}

void flip_last_bit(const std::string& path) {
  std::string bytes = read_text(path);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  std::ofstream(path, std::ios::binary) << bytes;
}

void edit_seed(const std::string& plan) {
  std::string content = read_text(plan);
  const std::string seed = R"("seed": "0")";
  const size_t at = content.find(seed);
  REQUIRE(at != std::string::npos);
  std::ofstream(plan, std::ios::binary) << content.replace(at, seed.size(), R"("seed": "1")");
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Before the shortest watch of the start has run out, which takes 20 s: what ended by itself and was not waited for. It
// is two seconds, of which a host with other work may give the processes a part.
constexpr double kBeforeAnyWatch = 15;

}  // namespace

TEST_CASE("a file of the folder that was changed: exit code 3, at once, and the cause is named first") {
  for (const std::string name : {"weights.safetensors", "names.json", "manifest.txt", "plan.json"}) {
    CAPTURE(name);
    const std::string folder = copy_of_folder();
    if (name == "plan.json") edit_seed(folder + "/" + name);
    else if (name != "manifest.txt") flip_last_bit(folder + "/" + name);
    else std::ofstream(folder + "/" + name, std::ios::app) << "what is this line\n";
    const EndedRun ended = run_with(folder, {});
    CAPTURE(ended.talk);
    CHECK(ended.code == 3);
    CHECK(ended.seconds < kBeforeAnyWatch);
    CHECK(has(ended.first_error, name));
    CHECK(has(ended.first_error, "error[malformed-file]"));
    // Every rank finds it.
    const size_t at = ended.talk.find(ended.first_error);
    CHECK(ended.talk.find(ended.first_error, at + 1) == std::string::npos);
  }
}

TEST_CASE("verify --json says what ended the programs") {
  const std::string folder = copy_of_folder();
  flip_last_bit(folder + "/names.json");
  const json refused = json::parse(graphpipe_output({"verify", folder, "--json"}, 3));
  REQUIRE(refused["diagnostics"].size() >= 2);  // other ranks may report the lost peer
  CHECK(has(refused["diagnostics"][0]["message"], "names.json"));
  CHECK(refused["diagnostics"][1]["message"] == "the run of the pipeline ended with exit code 3");
}

TEST_CASE("ranks are forks of one process, of whose failure the run tells") {
  BackgroundRun run(run_words(three_stage_folder(), {}), work_folder("start.talk"));
  REQUIRE(run.says("step 3 of", 60));
  std::set<std::string> names;
  for (const pid_t device : run.devices()) {
    const std::string folder = "/proc/" + std::to_string(device);
    CHECK(has(read_text(folder + "/cmdline"), "/build/device"));
    names.insert(read_text(folder + "/comm"));
    // Standard streams aside, none has what another one talks by.
    for (const fs::directory_entry& descriptor : fs::directory_iterator(folder + "/fd"))
      for (const pid_t other : run.devices())
        if (other != device && has(fs::read_symlink(descriptor.path()).string(), "socket:"))
          for (const fs::directory_entry& its : fs::directory_iterator("/proc/" + std::to_string(other) + "/fd"))
            CHECK(fs::read_symlink(its.path()) != fs::read_symlink(descriptor.path()));
  }
  CHECK(names == std::set<std::string>{"device0\n", "device1\n", "device2\n"});
  // LibTorch finds no place: the loader ends the one process before there are ranks.
  const EndedRun ended = [] {
    std::vector<std::string> words = {"bash", "-c", "ulimit -v 300000; exec \"$@\"", "run"};
    const std::vector<std::string> own = run_words(three_stage_folder(), {});
    words.insert(words.end(), own.begin(), own.end());
    BackgroundRun limited(words, work_folder("start.talk"));
    const int code = limited.wait(60);
    return EndedRun{.code = code, .seconds = 0, .first_error = first_error_of(limited.talk()), .talk = limited.talk()};
  }();
  CAPTURE(ended.talk);
  CHECK(ended.code == 5);
  CHECK(has(ended.first_error, "device 0 did not start"));
}

TEST_CASE("a device that dies before the ranks have met ends the run at once, by name") {
  for (const size_t victim : {0, 2}) {
    CAPTURE(victim);
    const EndedRun ended =
        run_with(three_stage_folder(), [&](const std::vector<pid_t>& devices) { kill(devices[victim], SIGKILL); });
    CAPTURE(ended.talk);
    CHECK(ended.code == 6);
    CHECK(ended.seconds < kBeforeAnyWatch);
    const std::string missed = "rank " + std::to_string(victim) + " ended",
                      ended_by = "device " + std::to_string(victim) + " was ended by signal 9";
    // On a busy machine the others are stopped before they have come so far as to miss it; on a fast one they have met.
    CHECK((has(ended.first_error, missed) || has(ended.first_error, ended_by)));
    CHECK(has(ended.talk, ended_by));
    CHECK_FALSE(has(ended.talk, "was ended by signal 15"));
  }
}

TEST_CASE("a device that is stopped before the ranks have met does not hold the run") {
  std::vector<std::string> words = {"env", "LD_PRELOAD=" GRAPHPIPE_BINARY_DIR "/tests/libsuspend_rank_zero.so"};
  const std::vector<std::string> own = run_words(three_stage_folder(), {});
  words.insert(words.end(), own.begin(), own.end());
  BackgroundRun run(words, work_folder("start.talk"));
  CHECK(run.wait(40) == 6);
  CAPTURE(run.talk());
  CHECK(has(first_error_of(run.talk()), "rank 0 did not start within 20 s"));
  CHECK_FALSE(has(run.talk(), "was ended by signal"));  // that is the launcher's own doing
}

TEST_CASE("devices that are all suspended, so that none can tell, do not hold the run") {
  std::vector<std::string> words = run_words(three_stage_folder(), {});
  *std::find(words.begin(), words.end(), "600") = "1";
  BackgroundRun run(words, work_folder("start.talk"));
  // The launcher waits for each until it is a program of its own.
  const auto is_device = [](pid_t process) {
    return has(read_text("/proc/" + std::to_string(process) + "/cmdline"), "/build/device");
  };
  while (run.devices().size() < 3 || !std::ranges::all_of(run.devices(), is_device)) std::this_thread::yield();
  for (const pid_t device : run.devices()) kill(device, SIGSTOP);
  CHECK(run.wait(20) == 6);
  CAPTURE(run.talk());
  CHECK(has(run.talk(), "all devices that still ran were suspended (SIGSTOP)"));
  CHECK_FALSE(has(run.talk(), "was ended by signal"));
}

namespace {

// The inodes of the sockets that listen for TCP, of all processes.
std::set<std::string> listening_inodes() {
  std::set<std::string> inodes;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      std::istringstream words(line);
      std::string number, own, other, state, queues, timer, retries, user, timeout, inode;
      words >> number >> own >> other >> state >> queues >> timer >> retries >> user >> timeout >> inode;
      if (state == "0A") inodes.insert("socket:[" + inode + "]");
    }
  }
  return inodes;
}

bool listens(pid_t process) {
  const std::set<std::string> inodes = listening_inodes();
  const fs::directory_iterator descriptors("/proc/" + std::to_string(process) + "/fd");
  return std::any_of(begin(descriptors), end(descriptors), [&](const fs::directory_entry& descriptor) {
    std::error_code error;
    return inodes.contains(fs::read_symlink(descriptor.path(), error).string());
  });
}

// Whether another user may open the file. Root becomes one.
bool nobody_may_open(const std::string& path) {
  const pid_t process = fork();
  if (process == 0) {
    if (setgroups(0, nullptr) != 0 || setgid(kNobody) != 0 || setuid(kNobody) != 0) _exit(2);
    _exit(open(path.c_str(), O_RDONLY | O_CLOEXEC) >= 0 ? 1 : 0);
  }
  int status = 0;
  waitpid(process, &status, 0);
  REQUIRE(WIFEXITED(status));
  REQUIRE(WEXITSTATUS(status) != 2);
  return WEXITSTATUS(status) == 1;
}

}  // namespace

TEST_CASE("nobody listens in the middle of a run, and other users can neither read its secret nor reach its memory") {
  for (const std::string transport : {"shm", "tcp"}) {
    CAPTURE(transport);
    BackgroundRun run(run_words(three_stage_folder(), {"--transport", transport}), work_folder("start.talk"));
    REQUIRE(run.says("step 3 of", 60));
    CAPTURE(run.talk());
    const std::vector<pid_t> devices = run.devices();
    REQUIRE(devices.size() == 3);
    for (pid_t device : devices) {
      CHECK_FALSE(listens(device));
      const std::string folder = "/proc/" + std::to_string(device);
      const std::string environment = read_text(folder + "/environ");
      const size_t at = environment.find("GRAPHPIPE_SECRET=");
      REQUIRE(at != std::string::npos);
      const std::string secret = environment.substr(at + 17, 64);
      CHECK(secret.find_first_not_of("0123456789abcdef") == std::string::npos);
      CHECK_FALSE(has(read_text(folder + "/cmdline"), secret));
      if (geteuid() != 0) continue;
      CHECK_FALSE(nobody_may_open(folder + "/environ"));
      for (const fs::directory_entry& descriptor : fs::directory_iterator(folder + "/fd"))
        CHECK_FALSE(nobody_may_open(descriptor.path()));
    }
    if (geteuid() != 0) std::cout << "SKIP: only root can try as another user\n";
  }
}

TEST_CASE("over TCP the device that is stopped is named first, whichever it is") {
  for (const size_t victim : {0, 1, 2}) {
    CAPTURE(victim);
    std::vector<std::string> words = run_words(three_stage_folder(), {"--transport", "tcp"});
    *std::find(words.begin(), words.end(), "600") = "2";
    BackgroundRun run(words, work_folder("start.talk"));
    REQUIRE(run.says("step 3 of", 60));
    kill(run.devices().at(victim), SIGSTOP);
    CHECK(run.wait(20) == 6);
    CAPTURE(run.talk());
    const std::string number = std::to_string(victim);
    CHECK(has(first_error_of(run.talk()),
              "error[peer-failed] rank " + number + " (stage " + number + ") made no progress"));
  }
}
