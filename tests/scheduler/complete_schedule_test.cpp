#include <doctest/doctest.h>

#include <sstream>

#include "scheduler/analysis/schedule_bound.h"
#include "scheduler/standalone/infer_stages.h"
#include "scheduler/standalone/policy_schedule.h"
#include "tests/scheduler/helpers.h"

using namespace graphpipe;
using namespace graphpipe::tests;

namespace {

std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream in(line);
  for (std::string cell; std::getline(in, cell, ',');) cells.push_back(cell);
  return cells;
}

std::string peaks_text(const std::vector<int>& peaks) {
  std::string out;
  for (const int peak : peaks) out += (out.empty() ? "" : "|") + std::to_string(peak);
  return out;
}

ScheduleMetrics metrics_with(const WholeSchedule& whole, const PassCosts& costs) {
  StageGraph graph = whole.graph;
  set_costs(graph, costs);
  const ir::Cluster cluster = standalone_cluster(static_cast<int>(whole.cluster.devices.size()), costs.latency);
  const auto timeline = simulate(graph, cluster, whole.schedule, {.ticks_per_second = kTicksPerUnit});
  if (!timeline.ok()) FAIL(timeline.problems().front().message);
  const ScheduleMetrics metrics = schedule_metrics(graph, cluster, whole.schedule, *timeline);
  CHECK(metrics.lower_bound <= metrics.makespan * (1 + 1e-9));
  return metrics;
}

Verdict check_csv(const std::string& csv) { return complete_schedule(parse_csv(csv), EdgeNumbers::kChain, {}); }

struct Offence {
  int program, position;
  std::string what;
};

Offence offence_of(const std::string& csv) {
  const Verdict verdict = check_csv(csv);
  CHECK_FALSE(verdict.whole.has_value());
  if (!verdict.problem) return {-2, -2, "nothing"};
  CHECK_FALSE(verdict.problem->hint.empty());
  return {verdict.problem->program, verdict.problem->position, verdict.problem->what};
}

void check_offence(const std::string& csv, int program, int position, const std::string& part) {
  CAPTURE(csv);
  const Offence offence = offence_of(csv);
  CAPTURE(offence.what);
  CHECK(offence.program == program);
  CHECK(offence.position == position);
  CHECK(offence.what.find(part) != std::string::npos);
}

}  // namespace

TEST_CASE("every row and column of expected.csv") {
  std::istringstream lines(read_schedule("expected.csv"));
  std::string line;
  std::getline(lines, line);
  int compared = 0;
  for (; std::getline(lines, line); ++compared) {
    const std::vector<std::string> row = split(line);
    CAPTURE(row[0]);
    const Verdict verdict = check_csv(read_schedule(row[0]));
    if (verdict.problem) FAIL(verdict.problem->what);
    const WholeSchedule& whole = *verdict.whole;
    CHECK(std::to_string(whole.schedule.programs.size()) == row[1]);
    CHECK(std::to_string(whole.graph.stages.size()) == row[2]);
    CHECK(std::to_string(whole.graph.batch.count) == row[3]);
    CHECK(std::to_string(whole.graph.stages[StageId(size_t{0})].choice.devices.size()) == row[4]);
    const ScheduleMetrics equal = metrics_with(whole, {});
    CHECK(equal.makespan == doctest::Approx(std::stod(row[5])));
    CHECK(equal.longest_rank_span == doctest::Approx(std::stod(row[6])));
    CHECK(equal.bubble_fraction == doctest::Approx(std::stod(row[7])).epsilon(1e-5));
    CHECK(peaks_text(equal.peak_to_weight_gradient) == row[8]);
    CHECK(peaks_text(equal.peak_to_input_gradient) == row[9]);
    CHECK(metrics_with(whole, {.latency = 0.5}).makespan == doctest::Approx(std::stod(row[10])));
    CHECK(metrics_with(whole, {.forward = 2, .input_gradient = 3, .weight_gradient = 2}).makespan ==
          doctest::Approx(std::stod(row[11])));
  }
  CHECK(compared == 102);
}

TEST_CASE("orders of compute: the first offending action") {
  CHECK(check_csv("0F0,0B0\n1F0,1B0\n").whole.has_value());
  check_offence("0F0,0F0,0B0\n1F0,1B0\n", 0, 1, "another forward has run");
  check_offence("0B0,0F0\n1F0,1B0\n", 0, 0, "before its forward");
  check_offence("0F0,0I0,0W0\n1F0,1W0,1I0\n", 1, 1, "before its input gradient");
  check_offence("0F0,0B0,0B0\n1F0,1B0\n", 0, 2, "a second time");
  check_offence("0F0,0F1,0B0,0B1\n1F0,1B0\n", 1, 1, "stage 1 has no forward of sample 1");
  check_offence("0F0,0F1,0B0\n1F0,1F1,1B0,1B1\n", 0, 3, "stage 0 has no backward of sample 1");
  check_offence("0F0,0F1,0F2,0B2,0B0\n1F0,1F1,1F2,1B2,1B1,1B0\n", 0, 4, "stage 0 has no backward of sample 1");
  check_offence("0F0,0F1,0F2,0B1,0B0\n1F0,1F1,1F2,1B2,1B1,1B0\n", 0, 3, "stage 0 has no backward of sample 2");
  check_offence("0F0,0F1,0B1\n1F0,1F1,1B0,1B1\n", 0, 2, "stage 0 has no backward of sample 0");
  check_offence("0F0,0I0,0W0\n1F0,1I0\n", 1, 2, "stage 1 has no weight gradient of sample 0");
  // Stage 1 of the other rank belongs there.
  check_offence("0F0,0B0,1F1\n1F0,1B0\n", 1, 0, "is not on the device of its stage");
  // Rank 0 wants the gradient of micro-batch 0 before it has sent micro-batch 1, which rank 1 runs first.
  check_offence("0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n", 0, 1, "waits forever");
  check_offence("0F0,0B0\n2F0,2B0\n", -1, -1, "stage 1 has no forward");
}

TEST_CASE("a forward that is missing is named, with the place where it was expected") {
  const Verdict verdict = check_csv("0F0,0F1,0F2,0B0,0B1,0B2\n1F0,1B0,1F2,1B2,1B1\n");
  REQUIRE(verdict.problem);
  REQUIRE(verdict.problem->missing);
  CHECK(ir::print_action(*verdict.problem->missing) == "1F[1,2)");
  CHECK(verdict.problem->program == 1);
  CHECK(verdict.problem->position == 1);
}

TEST_CASE("orders with communication: the first offending message") {
  const std::string good =
      "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
      "1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1\n";
  const Verdict verdict = check_csv(good);
  REQUIRE(verdict.whole.has_value());
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string csv = good;
    csv.replace(csv.find(from), from.size(), to);
    return csv;
  };
  check_offence(changed(",1RECV_F1", ""), 0, 3, "is never received");
  check_offence(changed(",0SEND_F1", ""), 1, 2, "is never sent");
  check_offence(changed("0F0,0SEND_F0", "0SEND_F0,0F0"), 0, 0, "computes only later");
  check_offence(changed("1RECV_F0,1F0", "1F0,1RECV_F0"), 1, 1, "comes after the forward");
  // The channel delivers micro-batch 0 first; the receiver expects 1.
  check_offence(changed("1RECV_F0,1F0,1RECV_F1", "1RECV_F1,1RECV_F0,1F0"), 1, 0, "meets");
  check_offence("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F0\n", 1, 4, "comes after the forward");
}

TEST_CASE("sends that block: two ranks that both send first hang, and are named") {
  // With buffers it runs; where a send blocks until it is received, both ranks stand at a send.
  const std::string both_send =
      "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
      "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n";
  check_offence(both_send, 0, 3, "where sends block until they are received");
}

TEST_CASE("messages between stages of one device may be left out") {
  const std::string v =
      "0F0,0SEND_F0,3RECV_F0,3F0,3B0,3SEND_B0,0RECV_B0,0B0\n"
      "1RECV_F0,1F0,2F0,2SEND_F0,2RECV_B0,2B0,1B0,1SEND_B0\n";
  const Verdict verdict = check_csv(v);
  if (verdict.problem) FAIL(verdict.problem->what);
  CHECK(metrics_with(*verdict.whole, {}).makespan == 12);
}

TEST_CASE("our own form is checked by its own messages, steps and slots") {
  for (const char* name : {"1f1b", "zb-1p", "zb-v", "dualpipe"}) {
    CAPTURE(name);
    const Policy& policy = *find_policy(name);
    StageGraph graph = *policy_schedule(policy, {.ranks = 4, .micro_batches = 8});
    for (ir::Stage& stage : graph.stages) stage.weight_bytes = stage.trainable_weight_bytes = Bytes(8);
    const ir::Cluster cluster = standalone_cluster(4);
    const Schedule schedule = *insert_transfers(graph, *policy.order({.graph = graph, .cluster = cluster}));
    const auto text = ir::parse_schedule(ir::print_schedule(schedule));
    REQUIRE(text.ok());
    const Verdict verdict = complete_schedule(*text, EdgeNumbers::kFromActions, {});
    if (verdict.problem) FAIL(verdict.problem->what);
    CHECK(metrics_with(*verdict.whole, {}).makespan ==
          units(simulate(graph, cluster, schedule, {.ticks_per_second = kTicksPerUnit})->makespan));
    Schedule broken = schedule;
    std::vector<Action>& actions = broken.programs[1].actions;
    std::erase_if(actions, [](const Action& a) { return a.op == ActionOp::kReceiveForward && a.range.first == 3; });
    CHECK(complete_schedule(broken, EdgeNumbers::kFromActions, {}).problem.has_value());
  }
}

TEST_CASE("hostile numbers are refused before anything of their size is made") {
  check_offence("1000000000F0\n", 0, 0, "beyond the number of all actions");
  check_offence("r999999999:0F0\n", 0, 0, "beyond the number of all actions");
}
