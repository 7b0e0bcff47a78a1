// The readers of schedules and of stage graphs.
#include "files/schedule_csv.h"
#include "files/schedule_file.h"
#include "files/stage_dag.h"
#include "scheduler/standalone/infer_stages.h"
#include "tests/files/random_plan.h"
#include "tests/fuzz/reader_checks.h"
#include "tests/fuzz/targets.h"

namespace graphpipe::tests {
namespace {

void run_schedule(std::string_view input) {
  check_round_trip(input, files::parse_schedule_file, files::print_schedule_file);
}

std::vector<std::string> schedule_seeds() {
  std::vector<std::string> seeds;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    std::mt19937_64 random(seed);
    seeds.push_back(files::print_schedule_file({.plan_digest = "", .schedule = random_schedule(random)}));
  }
  return seeds;
}

// Any orders at all get a verdict: a whole schedule, or what is wrong with one of its rows.
void check_verdict(const ir::Schedule& orders, scheduler::EdgeNumbers numbers) {
  const scheduler::Verdict verdict = scheduler::complete_schedule(orders, numbers, {});
  GP_CHECK(verdict.whole.has_value() != verdict.problem.has_value());
  if (!verdict.problem) return;
  const int program = verdict.problem->program, position = verdict.problem->position;
  GP_CHECK(program < static_cast<int>(orders.programs.size()) && !verdict.problem->what.empty());
  if (program >= 0)
    GP_CHECK(position <= static_cast<int>(orders.programs[static_cast<size_t>(program)].actions.size()));
}

void run_schedule_binary(std::string_view input) {
  check_round_trip(input, files::parse_schedule_binary, files::print_schedule_binary);
}

std::vector<std::string> schedule_binary_seeds() {
  std::vector<std::string> seeds;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    std::mt19937_64 random(seed);
    seeds.push_back(files::print_schedule_binary({.plan_digest = "", .schedule = random_schedule(random)}));
  }
  return seeds;
}

void run_schedule_lists(std::string_view input) {
  const Result<ir::Schedule> schedule = files::parse_schedule_lists(input);
  check_problems(schedule);
  if (schedule.ok()) check_verdict(*schedule, scheduler::EdgeNumbers::kFromActions);
}

std::vector<std::string> schedule_lists_seeds() {
  return {
      R"--({"policy": "a", "programs": [["0F[0,1)", "0F[1,2)", "0B[0,1)", "0B[1,2)"], ["1F[0,1)", "1B[0,1)",
              "1F[1,2)", "1B[1,2)"]]})--",
      R"--({"slots": [1, 1], "programs": [["0F[0,1)s0", "0SEND_F[0,1)e0s0"], ["1RECV_F[0,1)e0s0", "1F[0,1)s0"]]})--"};
}

void run_schedule_csv(std::string_view input) {
  check_round_trip(input, files::parse_schedule_csv, files::print_schedule_csv);
  if (const auto csv = files::parse_schedule_csv(input); csv.ok())
    check_verdict(files::orders_of(*csv).schedule, scheduler::EdgeNumbers::kChain);
}

std::vector<std::string> schedule_csv_seeds() {
  return {"0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", "0F0,3F0,3I0,3W0,0I0,0W0\n1F0,2F0,2B0,1B0\n",
          "0F0,0SEND_F0,0RECV_B0,0B0\n,1RECV_F0,1F0,1B0,1SEND_B0\n", "r0:0F0,r0:0B0,0REDUCE_GRAD\nr1:0F1,r1:0B1\n",
          "0UNSHARD,0F0,0F1,(0F2;0B0)OVERLAP_F_B,0B1,0B2,0RESHARD\n"};
}

void run_schedule_text(std::string_view input) {
  check_round_trip(input, ir::parse_schedule, ir::print_schedule);
  if (const auto schedule = ir::parse_schedule(input); schedule.ok())
    check_verdict(*schedule, scheduler::EdgeNumbers::kFromActions);
}

std::vector<std::string> schedule_text_seeds() {
  std::vector<std::string> seeds = {
      "schedule a\nslots 1 1\ndevice 0: 0F[0,1)s0 0SEND_F[0,1)e0s0 0RECV_B[0,1)e0s0 0B[0,1)s0\n"
      "device 1: 1RECV_F[0,1)e0s0 1F[0,1)s0 1B[0,1)s0 1SEND_B[0,1)e0s0\n",
      "schedule b\ndevice 0: 0F[0,2) 0F[2,4) 0I[0,2) 0W[0,2) 0B[2,4) 0STEP[0,4)v1\n"};
  for (uint64_t seed = 0; seed < 4; ++seed) {
    std::mt19937_64 random(seed);
    seeds.push_back(ir::print_schedule(random_schedule(random)));
  }
  return seeds;
}

// What is accepted is a stage graph in topological order, with one of everything per stage.
void run_stage_dag(std::string_view input) {
  const Result<files::StageDag> dag = files::parse_stage_dag(input);
  check_problems(dag);
  if (!dag.ok()) return;
  const size_t stages = dag->predecessors.size();
  GP_CHECK(stages > 0 && dag->micro_batch_size.size() == stages && dag->k.size() == stages && dag->batch >= 0);
  for (size_t stage = 0; stage < stages; ++stage) {
    for (const int before : dag->predecessors[stage]) GP_CHECK(before >= 0 && before < static_cast<int>(stage));
    GP_CHECK(dag->micro_batch_size[stage] >= 1 && dag->k[stage] >= 1);
    GP_CHECK(dag->batch == 0 || dag->micro_batch_size[stage] <= dag->batch);
  }
  for (const std::vector<double>* costs : {&dag->forward, &dag->backward}) {
    GP_CHECK(costs->empty() || costs->size() == stages);
    for (const double cost : *costs) GP_CHECK(cost >= 0);
  }
}

std::vector<std::string> stage_dag_seeds() {
  return {R"({"predecessors": [[], [0], [0], [1, 2]], "micro_batches": 8})",
          R"({"predecessors": [[], [], [0, 1]], "micro_batch_size": [1, 2, 4], "k": [4, 2, 1], "batch": 16,
              "forward": [1, 2, 3], "backward": 2.5, "latency": 0.5})",
          R"({"predecessors": [[]], "batch": 3, "cost_per_sample": {"forward": 1, "backward": [2]}})"};
}

const std::vector<std::string_view> kScheduleWords = {
    "0",       "1",          "F",          "B",      "I",      "W",      "r1:",    ",",           "\n",
    "(",       ")",          ";",          "[0,1)",  "e0",     "s0",     "v1",     "p1",          "c1",
    "o",       " ",          "R",          "SEND_F", "RECV_F", "SEND_B", "RECV_B", "OVERLAP_F_B", "UNSHARD",
    "device ", "2147483648", "1073741824", ": ",     "STEP",   "REDUCE", "NORM",   "FREE",        "PUBLISH",
    "SLICE",   "CONCAT",     "OFFLOAD",    "RELOAD", "FLUSH",  "slots ", "-1",     "\r"};

}  // namespace

FuzzTarget fuzz_schedule_file() { return {"schedule_file", run_schedule, schedule_seeds, kJsonWords}; }

FuzzTarget fuzz_schedule_binary() {
  return {"schedule_binary",
          run_schedule_binary,
          schedule_binary_seeds,
          {"graphpipe.schedule/1", "\x0a", "\x12", "\x1a", "\x08\x01", "\xff\xff\xff\xff\x0f", "RECV_F", "\x80"}};
}

FuzzTarget fuzz_schedule_lists() {
  return {"schedule_lists", run_schedule_lists, schedule_lists_seeds, kScheduleWords};
}

FuzzTarget fuzz_schedule_csv() { return {"schedule_csv", run_schedule_csv, schedule_csv_seeds, kScheduleWords}; }

FuzzTarget fuzz_schedule_text() { return {"schedule_text", run_schedule_text, schedule_text_seeds, kScheduleWords}; }

FuzzTarget fuzz_stage_dag() { return {"stage_dag", run_stage_dag, stage_dag_seeds, kJsonWords}; }

}  // namespace graphpipe::tests
