// What a run writes with --trace, and who is blamed where several ranks wait in a row.

#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>
#include <thread>

#include "runtime/executor/tracer.h"
#include "tests/runtime/chain_plan.h"
#include "tests/runtime/run_programs.h"
#include "wire/action_text.h"

using namespace graphpipe::runtime;
using namespace graphpipe::runtime::test;

namespace {

struct Event {
  std::string phase, name;
  int64_t process = 0, lane = 0, id = 0;
  double start = 0, duration = 0;
};

double number_after(const std::string& line, const std::string& key) {
  const size_t at = line.find("\"" + key + "\":");
  return at == std::string::npos ? -1 : std::strtod(line.c_str() + at + key.size() + 3, nullptr);
}

std::string word_after(const std::string& line, const std::string& key) {
  const size_t at = line.find("\"" + key + "\":\"");
  if (at == std::string::npos) return "";
  const size_t begin = at + key.size() + 4;
  return line.substr(begin, line.find('"', begin) - begin);
}

/// One event a line.
std::vector<Event> events_of(const std::string& file) {
  std::vector<Event> events;
  std::istringstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("\"ph\"") == std::string::npos) continue;
    events.push_back({word_after(line, "ph"), word_after(line, "name"), static_cast<int64_t>(number_after(line, "pid")),
                      static_cast<int64_t>(number_after(line, "tid")), static_cast<int64_t>(number_after(line, "id")),
                      number_after(line, "ts"), number_after(line, "dur")});
  }
  return events;
}

size_t count(const std::vector<Event>& events, const std::string& phase) {
  return static_cast<size_t>(std::ranges::count(events, phase, &Event::phase));
}

constexpr size_t kSteps = 2;

}  // namespace

TEST_CASE("a trace has a span for every action, in order on each rank, and an arrow for every message") {
  const ChainShape shape{.stages = 3, .micro_batches = 4, .replicas = {1, 2, 1}};
  const std::string folder = make_chain_folder(3, 16);
  const ChainPlan plan(shape);
  run_all(plan.programs(), folder,
          {"--data", folder, "--steps", std::to_string(kSteps), "--trace", folder + "/trace.json"});
  const std::vector<Event> events = events_of(read_file(folder + "/trace.json"));
  size_t actions = 0, sends = 0;
  for (const DeviceProgram& program : plan.programs())
    for (const graphpipe::wire::ActionRow& row : program.actions) {
      ++actions;
      sends += graphpipe::wire::is_send(row.op) ? 1 : 0;
      CHECK(static_cast<size_t>(std::ranges::count(events, graphpipe::wire::action_text(row), &Event::name)) == kSteps);
    }
  CHECK(count(events, "X") == kSteps * actions);
  CHECK(count(events, "s") == kSteps * sends);
  CHECK(count(events, "f") == kSteps * sends);
  CHECK(count(events, "C") > 0);
  std::map<int64_t, double> free_from;                  // by process: the end of the last compute span
  std::map<int64_t, std::pair<double, double>> arrows;  // by id
  for (const Event& event : events) {
    if (event.phase == "X") CHECK(event.duration >= 0);
    if (event.phase == "X" && event.lane == 0) {
      CHECK(event.start >= free_from[event.process]);
      free_from[event.process] = event.start + event.duration;
    }
    if (event.phase == "s") arrows[event.id].first = event.start;
    if (event.phase == "f") arrows[event.id].second = event.start;
  }
  CHECK(arrows.size() == kSteps * sends);
  for (const auto& [id, arrow] : arrows) CHECK(arrow.first <= arrow.second);
  const RunEnd serial = run_serial_process(plan.programs(), folder, {"--data", folder, "--trace", folder + "/t.json"});
  CHECK(serial.exit_code == 2);
  std::filesystem::remove_all(folder);
}

namespace {

StageFunction true_forward = nullptr;
void late_forward(const StageArguments& arguments) {
  if (arguments.step == 1 && arguments.first_sample == 4) std::this_thread::sleep_for(std::chrono::seconds(30));
  true_forward(arguments);
}

}  // namespace

TEST_CASE("of ranks that wait in a row, the one that made no progress is named") {
  const std::string folder = make_chain_folder(4, 12);
  const ChainPlan plan({.stages = 4, .micro_batches = 6});
  // Stage 1 sleeps: rank 0 waits for its gradient, rank 2 for its value, rank 3 for rank 2.
  StageEntry entry = *plan.programs()[1].stages[0];
  true_forward = entry.forward;
  entry.forward = late_forward;
  const StageEntry* held[] = {&entry};
  std::vector<DeviceProgram> programs = plan.programs();
  programs[1].stages = held;
  ProcessGroup group(programs, folder,
                     {"--data", folder, "--steps", "2", "--stall-timeout", "1", "--transport", "shm"});
  std::thread stop([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(4000));
    group.kill_rank(1, SIGKILL);
  });
  const std::vector<RunEnd> ends = group.wait(20);
  stop.join();
  // Each rank that finds out by itself says so; one that hears it from another leaves it at that.
  std::string errors;
  for (const size_t rank : {size_t{0}, size_t{2}, size_t{3}}) {
    CHECK(ends[rank].exit_code == 6);
    errors += ends[rank].errors;
    if (ends[rank].errors.empty()) continue;
    CAPTURE(ends[rank].errors);
    CHECK(ends[rank].errors.find("rank 1 (stage 1) made no progress for 1 s") != std::string::npos);
    CHECK(ends[rank].errors.find("F of samples [4,6) (micro-batch 2) of stage 1") != std::string::npos);
  }
  CHECK_FALSE(errors.empty());
  std::filesystem::remove_all(folder);
}

TEST_CASE("events that a trace has no room for are counted") {
  const ChainPlan plan({.stages = 1});
  const PlanTable& table = *plan.programs()[0].plan;
  Channels channels(table, 0, {}, nullptr, 1);
  Gather gather(channels, 1, [] {});
  for (const size_t limit : {size_t{2}, size_t{5}}) {
    Tracer tracer(limit);
    for (int i = 0; i < 5; ++i) {
      tracer.begin({.stage = 0}, 0, 0);
      tracer.finish(tracer.end(0));
    }
    const std::optional<CollectedTrace> trace = tracer.collect(gather, table);
    REQUIRE(trace);
    CHECK(trace->dropped == static_cast<int64_t>(5 - limit));
    CHECK(static_cast<size_t>(std::ranges::count(events_of(trace->text), "X", &Event::phase)) == limit);
    CHECK((trace->text.find("later events dropped: 3") != std::string::npos) == (limit == 2));
  }
}
