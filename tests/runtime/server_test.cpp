// A parameter server as a process of its own: with the smallest bound its updates are those of the schedule, bit by
// bit; with a larger one no gradient is older than it says; whoever is lost ends the run by name.

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "runtime/io/safetensors.h"
#include "tests/runtime/chain_plan.h"
#include "tests/runtime/run_programs.h"

using namespace graphpipe::runtime;
using namespace graphpipe::runtime::test;

namespace {

constexpr int kWorkers = 3;
const ChainShape kServed{.stages = 1, .micro_batches = 7, .replicas = {kWorkers}, .every_item = true};

// The programs of all ranks: any of them serves as the server's.
std::vector<DeviceProgram> served(const ChainPlan& plan) {
  std::vector<DeviceProgram> programs = plan.programs();
  programs.push_back(programs.front());
  return programs;
}

std::vector<std::string> served_words(const std::string& folder, const std::string& tag, int64_t steps,
                                      const std::vector<std::string>& more) {
  return TrainingFlags{.steps = steps, .lr = "0.2", .momentum = "0.5"}.words(folder, tag, more);
}

double number_of(const std::string& json, const std::string& name) {
  const size_t key = json.find("\"" + name + "\": ");
  return key == std::string::npos ? -1 : std::stod(json.substr(key + name.size() + 4));
}

// A stage's forward that is slow on one rank.
StageFunction plain_forward = nullptr;
void drowsy_forward(const StageArguments& arguments) {
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  plain_forward(arguments);
}
void killed_forward(const StageArguments& arguments) {
  if (arguments.step == 1) raise(SIGKILL);
  plain_forward(arguments);
}
// Of the process that the next one kills, in memory of all ranks.
pid_t* victim = nullptr;
void killing_forward(const StageArguments& arguments) {
  if (arguments.step == 1) kill(*victim, SIGKILL);
  plain_forward(arguments);
}

// The program of one rank with another forward.
struct OtherForward {
  OtherForward(const ChainPlan& plan, size_t rank, StageFunction forward)
      : entry(*plan.programs()[rank].stages[0]), programs(served(plan)) {
    plain_forward = entry.forward;
    entry.forward = forward;
    programs[rank].stages = held;
  }
  StageEntry entry;
  const StageEntry* held[1] = {&entry};
  std::vector<DeviceProgram> programs;
};

bool says_of(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// All others end because of it; who learns of it by another one's failure leaves the message to that one.
void check_blamed(const std::vector<RunEnd>& ends, size_t killed, const std::string& name) {
  CHECK(ends[killed].exit_code == -1);
  std::string errors;
  for (size_t rank = 0; rank < ends.size(); ++rank) {
    if (rank == killed) continue;
    CHECK(ends[rank].exit_code == 6);
    errors += ends[rank].errors;
  }
  CAPTURE(errors);
  CHECK(says_of(errors, name));
}

}  // namespace

TEST_CASE("a server that lets no worker overtake another one makes the updates of the schedule, bit by bit") {
  const struct {
    const char* name;
    ChainShape shape;
  } cases[] = {{"one step at a time", kServed},
               {"several", {.stages = 1, .micro_batches = 12, .batches = 3, .replicas = {2}, .every_item = true}},
               {"fewer micro-batches than workers",
                {.stages = 1, .micro_batches = 2, .replicas = {kWorkers}, .every_item = true}},
               {"one worker", {.stages = 1, .micro_batches = 4, .replicas = {1}, .every_item = true}}};
  for (const char* transport : {"shm", "tcp"})
    for (const auto& c : cases) {
      CAPTURE(c.name);
      CAPTURE(transport);
      const ChainPlan plan(c.shape);
      const int64_t steps = 3 * c.shape.batches, items = 3 * c.shape.micro_batches;
      const int workers = c.shape.replicas[0];
      const std::string folder = make_chain_folder(1, items * c.shape.micro_batch);
      const RunEnd serial = run_serial_process(plan.programs(), folder, served_words(folder, "serial", steps, {}));
      CAPTURE(serial.errors);
      REQUIRE(serial.exit_code == 0);
      const RunEnd end = run_all(served(plan), folder,
                                 served_words(folder, "served", steps,
                                              {"--staleness", std::to_string(workers - 1), "--transport", transport}));
      CHECK(numbers_of(end.output, "losses") == numbers_of(serial.output, "losses"));
      for (const char* file : {".w", ".g"})
        CHECK(read_file(folder + "/served" + file) == read_file(folder + "/serial" + file));
      const int64_t oldest = std::min<int64_t>(workers, c.shape.micro_batches) - 1;
      CHECK(number_of(end.output, "updates") == items);
      CHECK(number_of(end.output, "largest_staleness") == oldest);
      // In each of three drains: 0, 1, ... for the first micro-batches, then always the largest.
      CHECK(number_of(end.output, "mean_staleness") ==
            doctest::Approx(oldest - static_cast<double>(3 * oldest * (oldest + 1)) / 2 / static_cast<double>(items)));
      std::filesystem::remove_all(folder);
    }
}

TEST_CASE("no gradient is older than the bound, however slow a worker is") {
  ChainShape shape = kServed;
  shape.micro_batches = 30;
  const ChainPlan plan(shape);
  for (const int64_t bound : {2, 3, 4, 9}) {
    CAPTURE(bound);
    const std::string folder = make_chain_folder(1, shape.micro_batch * shape.micro_batches);
    const OtherForward slow(plan, 1, drowsy_forward);
    const std::vector<RunEnd> ends =
        ProcessGroup(slow.programs, folder, served_words(folder, "served", 1, {"--staleness", std::to_string(bound)}))
            .wait(60);
    for (const RunEnd& end : ends) {
      CAPTURE(end.errors);
      CHECK(end.exit_code == 0);
    }
    const std::string& report = ends.front().output;
    CHECK(number_of(report, "staleness_bound") == bound);
    CHECK(number_of(report, "updates") == 30);
    const double largest = number_of(report, "largest_staleness"), mean = number_of(report, "mean_staleness");
    CHECK(largest >= kWorkers - 1);
    CHECK(largest <= bound);
    // Whoever overtakes makes others older by as much as its own gradients are younger.
    CHECK(mean > 0);
    CHECK(mean <= kWorkers - 1);
    std::filesystem::remove_all(folder);
  }
}

TEST_CASE("a training with a server goes on from a checkpoint with the bits of one that was not interrupted") {
  const ChainPlan plan(kServed);
  const std::string folder = make_chain_folder(1, 4 * kServed.micro_batch * kServed.micro_batches);
  const auto run = [&](const std::string& tag, int64_t steps, bool resumes) {
    std::vector<std::string> more = {"--staleness", "2", "--ema", "0.5", "--checkpoint", folder + "/kept"};
    if (resumes) more.insert(more.end(), {"--resume", folder + "/kept"});
    run_all(served(plan), folder, served_words(folder, tag, steps, more));
  };
  run("whole", 4, false);
  std::filesystem::remove_all(folder + "/kept");
  run("first", 2, false);
  run("second", 4, true);
  CHECK(read_file(folder + "/second.w") == read_file(folder + "/whole.w"));
  std::filesystem::remove_all(folder);
}

TEST_CASE("a worker or a server that is killed ends the run, and is named") {
  const ChainPlan plan(kServed);
  for (const std::string transport : {"shm", "tcp"}) {
    CAPTURE(transport);
    const std::string folder = make_chain_folder(1, 3 * kServed.micro_batch * kServed.micro_batches);
    const std::vector<std::string> arguments =
        served_words(folder, "served", 3, {"--staleness", "4", "--transport", transport, "--stall-timeout", "2"});
    const OtherForward killed(plan, 1, killed_forward);
    const std::vector<RunEnd> without_worker = ProcessGroup(killed.programs, folder, arguments).wait(20);
    check_blamed(without_worker, 1, "rank 1 (stage 0)");
    victim =
        static_cast<pid_t*>(mmap(nullptr, sizeof *victim, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    const OtherForward killing(plan, 0, killing_forward);
    const std::vector<RunEnd> without_server = ProcessGroup(killing.programs, folder, arguments, [](size_t rank) {
                                                 if (rank == kWorkers) *victim = getpid();
                                               }).wait(20);
    munmap(victim, sizeof *victim);
    check_blamed(without_server, kWorkers, "rank 3 (parameter server)");
    std::filesystem::remove_all(folder);
  }
}

TEST_CASE("a server is refused where it could not keep the bound, or has nothing to serve") {
  const struct {
    const char* message;
    ChainShape shape;
    const char* bound;
  } cases[] = {{"while one of 3 workers computes, the others make 2 updates", kServed, "1"},
               {"no server sums them", {.stages = 1, .per_update = 2}, "5"},
               {"the plan has 2 stages", {.stages = 2}, "5"}};
  for (const auto& c : cases) {
    CAPTURE(c.message);
    const ChainPlan plan(c.shape);
    const std::string folder = make_chain_folder(c.shape.stages, c.shape.micro_batch * c.shape.micro_batches);
    std::string errors;
    bool is_usage = false;
    for (const RunEnd& end :
         ProcessGroup(served(plan), folder, served_words(folder, "served", 1, {"--staleness", c.bound})).wait(60)) {
      errors += end.errors;
      is_usage = is_usage || end.exit_code == 2;
    }
    CAPTURE(errors);
    CHECK(is_usage);
    CHECK(says_of(errors, c.message));
    std::filesystem::remove_all(folder);
  }
}
