// Runs that are killed at every phase go on from their last checkpoint to the same bits. A case is a seed: which plan,
// which process dies, and where. GRAPHPIPE_CRASH_CASES says how many run, from GRAPHPIPE_CRASH_FIRST on.

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <sstream>
#include <thread>

#include "runtime/checkpoint/checkpoint_folder.h"
#include "tests/crash/disk_events.h"
#include "tests/crash/power_cut.h"
#include "tests/runtime/chain_plan.h"
#include "tests/runtime/run_programs.h"
#include "tests/runtime/two_stage_plan.h"
#include "tests/support/case_count.h"

using namespace graphpipe::runtime;
using namespace graphpipe::runtime::test;

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Words = std::vector<std::string>;

constexpr int64_t kSteps = 8;

/// A plan, its folder, and what an uninterrupted run of it gives.
struct Subject {
  std::unique_ptr<ChainPlan> chain;
  std::unique_ptr<TwoStagePlan> two_stages;
  std::string folder;
  Words words;
  std::string expected;
  double seconds = 0;           // of a whole run
  std::vector<int64_t> events;  // by rank

  const std::vector<DeviceProgram>& programs() const { return chain ? chain->programs() : two_stages->programs(); }
  std::string checkpoints() const { return folder + "/checkpoints"; }
  std::string saved() const { return folder + "/saved"; }
  ~Subject() {
    if (!folder.empty()) fs::remove_all(folder);
  }
};

Words words_of(const Subject& subject) {
  Words words = subject.words;
  words.insert(words.end(), {"--data", subject.folder, "--steps", std::to_string(kSteps), "--json", "--save",
                             subject.saved(), "--checkpoint", subject.checkpoints(), "--resume", subject.checkpoints(),
                             "--checkpoint-every", "2", "--keep", "2"});
  return words;
}

/// The launcher of a run: a process of its own, with a group of its own, whose death is that of its ranks. As that of
/// `graphpipe run` it gives the others a second to end where one was killed.
pid_t launch(const Subject& subject) {
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid != 0) return pid;
  setpgid(0, 0);
  const pid_t launcher = getpid();
  const auto in_child = [launcher](size_t rank) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    crash::become_rank(static_cast<int>(rank), launcher);
  };
  ProcessGroup group(subject.programs(), subject.folder, words_of(subject), in_child);
  siginfo_t first{};
  waitid(P_ALL, 0, &first, WEXITED | WNOWAIT);
  const bool well = first.si_code == CLD_EXITED && first.si_status == 0;
  int code = 0;
  for (const RunEnd& end : group.wait(well ? 60 : 1)) code = std::max(code, end.exit_code == 0 ? 0 : 1);
  _exit(code);
}

/// Waits until no process of the run is left: orphans are ours (PR_SET_CHILD_SUBREAPER). Returns how the launcher
/// ended.
int wait_for_all(pid_t launcher) {
  int of_launcher = -1;
  for (int status = 0;;) {
    const pid_t pid = waitpid(-1, &status, 0);
    if (pid < 0) return of_launcher;
    if (pid == launcher) of_launcher = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
}

void measure(Subject& subject) {
  const std::vector<DeviceProgram>& programs = subject.programs();
  crash::watch(subject.checkpoints(), {});
  const Clock::time_point start = Clock::now();
  REQUIRE(wait_for_all(launch(subject)) == 0);
  subject.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  for (size_t rank = 0; rank < programs.size(); ++rank)
    subject.events.push_back(crash::events_of(static_cast<int>(rank)));
  subject.expected = read_file(subject.saved());
  REQUIRE(subject.expected.size() > 100);
  REQUIRE(subject.events[0] > 30);
}

std::vector<std::unique_ptr<Subject>> make_subjects() {
  std::vector<std::unique_ptr<Subject>> subjects;
  const auto add_chain = [&](const ChainShape& shape) {
    Subject& subject = *subjects.emplace_back(std::make_unique<Subject>());
    subject.chain = std::make_unique<ChainPlan>(shape);
    subject.folder = make_chain_folder(shape.stages, 23);
    subject.words = {"--lr", "0.1", "--momentum", "0.9"};
  };
  const auto add_two_stages = [&](const PlanShape& shape, Words words) {
    Subject& subject = *subjects.emplace_back(std::make_unique<Subject>());
    subject.two_stages = std::make_unique<TwoStagePlan>(shape);
    subject.folder = make_folder(shape.shared, 19);
    subject.words = std::move(words);
  };
  add_chain({.stages = 3, .micro_batches = 5});
  add_chain({.stages = 2, .micro_batches = 8, .versions = Versions::kTwoBuffers, .per_update = 2});
  add_two_stages({.micro_batch = {4, 2}, .replicas = {2, 1}, .optimizer = "adamw"}, {"--lr", "0.01"});
  add_two_stages({.micro_batch = {4, 4}, .shared = true, .optimizer = "adamw"}, {"--transport", "tcp"});
  add_two_stages({.one_device = true}, {"--momentum", "0.9"});
  for (const std::unique_ptr<Subject>& subject : subjects) measure(*subject);
  return subjects;
}

/// Where a case dies: at a call that changes the disk, or at a time.
struct Death {
  crash::KillPoint point;
  double seconds = -1;
  std::string text;
};

Death choose_death(const Subject& subject, std::mt19937& random) {
  Death death;
  const auto rank = static_cast<int>(random() % subject.programs().size());
  const auto victim = static_cast<crash::Victim>(random() % 3);
  const char* const names[] = {"the rank", "the launcher", "all"};
  if (random() % 3 != 0) {
    const int64_t events = std::max<int64_t>(1, subject.events[static_cast<size_t>(rank)]);
    death.point = {rank, static_cast<int64_t>(random()) % events, victim};
    death.text = std::string(names[static_cast<int>(victim)]) + " at call " + std::to_string(death.point.event) +
                 " of rank " + std::to_string(rank);
    return death;
  }
  death.point = {rank, -1, victim};
  death.seconds = subject.seconds * static_cast<double>(random() % 1000) / 1000;
  death.text = std::string(names[static_cast<int>(victim)]) + " after " + std::to_string(death.seconds) + " s, rank " +
               std::to_string(rank);
  return death;
}

/// The process of a rank: the launcher forks them in their order. 0 where it is not there yet, or no more.
pid_t process_of_rank(pid_t launcher, int rank) {
  const std::string number = std::to_string(launcher);
  std::istringstream list(read_file("/proc/" + number + "/task/" + number + "/children"));
  pid_t pid = 0;
  for (int i = 0; i <= rank; ++i)
    if (!(list >> pid)) return 0;
  return pid;
}

/// Whether one rank was killed: it may not be there yet, or no more.
bool kill_at_time(const Death& death, pid_t launcher) {
  std::this_thread::sleep_for(std::chrono::duration<double>(death.seconds));
  if (death.point.victim == crash::Victim::kAll) kill(-launcher, SIGKILL);
  if (death.point.victim == crash::Victim::kLauncher) kill(launcher, SIGKILL);
  if (death.point.victim != crash::Victim::kRank) return false;
  const pid_t pid = process_of_rank(launcher, death.point.rank);
  return pid > 0 && kill(pid, SIGKILL) == 0;
}

/// The longest time from the death of one rank to that of the last, seconds: printed, since a busy machine stops
/// anyone.
double longest_end = 0;

void wait_for_end(const Death& death, pid_t launcher) {
  const bool killed_rank = death.seconds >= 0 && kill_at_time(death, launcher);
  const Clock::time_point killed = Clock::now();
  wait_for_all(launcher);
  const double seconds = std::chrono::duration<double>(Clock::now() - killed).count();
  if (killed_rank) longest_end = std::max(longest_end, seconds);
}

void check_folder(const Subject& subject) {
  if (!fs::exists(subject.checkpoints())) return;
  for (const int64_t step : checkpoint_steps(subject.checkpoints())) {
    CAPTURE(step);
    CHECK(step % 2 == 0);
  }
  graphpipe::Diagnostics damaged;
  const auto last = find_last_checkpoint(subject.checkpoints(), damaged);
  for (const graphpipe::Diagnostic& problem : damaged) FAIL_CHECK(to_line(problem));
  CHECK(last.has_value() == !checkpoint_steps(subject.checkpoints()).empty());
}

void check_case(const Subject& subject, uint32_t seed) {
  std::mt19937 random(seed);
  const Death death = choose_death(subject, random);
  CAPTURE(seed);
  CAPTURE(death.text);
  fs::remove_all(subject.checkpoints());
  fs::remove(subject.saved());
  crash::watch(subject.checkpoints(), death.point);
  const pid_t launcher = launch(subject);
  wait_for_end(death, launcher);
  if (death.point.victim == crash::Victim::kAll)
    crash::lose_what_was_not_flushed(subject.checkpoints(), crash::journal(), random);
  if (fs::exists(subject.saved())) CHECK((read_file(subject.saved()) == subject.expected));
  check_folder(subject);
  const std::vector<int64_t> before =
      fs::exists(subject.checkpoints()) ? checkpoint_steps(subject.checkpoints()) : std::vector<int64_t>();
  crash::watch(subject.checkpoints(), {});
  CHECK(wait_for_all(launch(subject)) == 0);
  CHECK((read_file(subject.saved()) == subject.expected));
  const int64_t first_step = before.empty() ? 1 : before.back() + 1;
  const std::string result = read_file(subject.folder + "/run0.0.out");
  CHECK(result.find("\"first_step\": " + std::to_string(first_step) + ",") != std::string::npos);
  check_folder(subject);
  // Where nothing was left to run, nothing was committed, which is when older ones go.
  const bool is_done = !before.empty() && before.back() == kSteps;
  CHECK(checkpoint_steps(subject.checkpoints()) == (is_done ? before : std::vector<int64_t>{kSteps - 2, kSteps}));
  for (const fs::directory_entry& entry : fs::directory_iterator(subject.checkpoints())) {
    const std::string name = entry.path().filename().string();
    CHECK((name == "graphpipe-checkpoints.txt" || name.starts_with("step-")));
  }
}

int64_t number_from_environment(const char* name, int64_t otherwise) {
  const char* const text = std::getenv(name);
  return text != nullptr ? std::atoll(text) : otherwise;
}

size_t shared_memory_files() {
  size_t count = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator("/dev/shm"))
    if (entry.path().filename().string().find("graphpipe") != std::string::npos) ++count;
  return count;
}

}  // namespace

TEST_CASE("a run that is killed goes on from its last checkpoint to the same bits") {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const std::vector<std::unique_ptr<Subject>> subjects = make_subjects();
  const int64_t first = number_from_environment("GRAPHPIPE_CRASH_FIRST", 0);
  const int64_t cases = number_from_environment("GRAPHPIPE_CRASH_CASES", graphpipe::tests::all_cases() ? 300 : 90);
  const size_t shared_before = shared_memory_files();
  for (int64_t seed = first; seed < first + cases; ++seed)
    check_case(*subjects[static_cast<size_t>(seed) % subjects.size()], static_cast<uint32_t>(seed));
  CHECK(shared_memory_files() == shared_before);
  MESSAGE(cases, " cases; the other ranks had ended ", longest_end, " s after one was killed");
}
