#include "files/schedule_csv.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "tests/support/csv_text.h"
#include "tests/support/test_data.h"

using namespace graphpipe;
using graphpipe::tests::without_idle_cells;
using namespace graphpipe::files;

namespace {

std::string text_of(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

}  // namespace

TEST_CASE("every recorded schedule reads and writes again as it was, but for idle cells") {
  int written = 0, refused = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(graphpipe::tests::data_path("schedules"))) {
    const std::string name = entry.path().filename().string();
    if (entry.path().extension() != ".csv" || name == "expected.csv") continue;
    CAPTURE(name);
    const std::string text = text_of(entry.path());
    const auto csv = parse_schedule_csv(text);
    // Lists of instructions and buffers are another format.
    if (name.find("_instr_") != std::string::npos) {
      REQUIRE_FALSE(csv.ok());
      CHECK(csv.problems().front().hint.find("another format") != std::string::npos);
      ++refused;
      continue;
    }
    REQUIRE(csv.ok());
    CHECK(print_schedule_csv(*csv) == without_idle_cells(text));
    ++written;
  }
  CHECK(written >= 102);
  CHECK(refused == 7);
}

TEST_CASE("all words of the format survive a round trip") {
  const std::string csv =
      "0UNSHARD,0F0,,0SEND_F0,4RECV_F0,(0F7;7B3)OVERLAP_F_B,r1:3I4,r0:2W10,0RESHARD,0REDUCE_GRAD\n"
      "\n"
      "1RECV_B2,1SEND_B0,0REDUCE_GRAD3\n";
  const auto parsed = parse_schedule_csv(csv);
  REQUIRE(parsed.ok());
  CHECK(print_schedule_csv(*parsed) == without_idle_cells(csv));
  CHECK(parsed->ranks.size() == 3);
  // Idle cells keep their place in the count.
  CHECK(parsed->ranks[0][2].column == 3);
  const CsvOrders orders = orders_of(*parsed);
  CHECK(orders.has_messages);
  // UNSHARD, RESHARD and REDUCE_GRAD say nothing of order; a pair is two actions of one cell.
  REQUIRE(orders.schedule.programs[0].actions.size() == 7);
  CHECK(ir::print_action(orders.schedule.programs[0].actions[3]) == "0F[7,8)o");
  CHECK(orders.cell_of[0] == std::vector<int32_t>{1, 2, 3, 4, 4, 5, 6});
  CHECK(ir::print_action(orders.schedule.programs[0].actions[1]) == "0SEND_F[0,1)e0p0");
  CHECK(ir::print_action(orders.schedule.programs[0].actions[2]) == "4RECV_F[0,1)e3p0");
  CHECK(ir::print_action(orders.schedule.programs[1 + 1].actions[0]) == "1RECV_B[2,3)e1p0");
}

TEST_CASE("what is no token is refused with rank and cell, all at once") {
  const auto csv = parse_schedule_csv("0F0,2X1,0B\n0F0;,(0F0;1F1)OVERLAP_F_B,(0F0)OVERLAP_F_B,-1F0,99999999999F0\n");
  REQUIRE_FALSE(csv.ok());
  REQUIRE(csv.problems().size() == 7);
  CHECK(csv.problems()[0].message == "rank 0, cell 1: not an action: '2X1'");
  CHECK(csv.problems()[1].message.starts_with("rank 0, cell 2"));
  CHECK(csv.problems()[2].message.starts_with("rank 1, cell 0"));
  for (const Diagnostic& problem : csv.problems()) CHECK(problem.code == Code::kMalformedFile);
  CHECK_FALSE(parse_schedule_csv("").ok());
  CHECK_FALSE(parse_schedule_csv("\n\n").ok());
}

TEST_CASE("the format's limits are said, not guessed around") {
  ir::StageGraph graph;
  graph.batch = Samples(4);
  for (int s = 0; s < 3; ++s) {
    ir::Stage stage;
    stage.choice.devices = {ir::DeviceId(static_cast<size_t>(s))};
    graph.stages.push_back(stage);
  }
  graph.edges.push_back({.from = ir::StageId(size_t{0}), .to = ir::StageId(size_t{2})});
  ir::Schedule schedule;
  schedule.programs.push_back({ir::DeviceId(size_t{0}), {}});
  ir::Action forward;
  forward.stage = 0;
  forward.range = {0, 2};
  schedule.programs[0].actions = {forward};
  CHECK(csv_of(graph, schedule, CsvLevel::kCompute).ok());
  const auto skip = csv_of(graph, schedule, CsvLevel::kCommunication);
  REQUIRE_FALSE(skip.ok());
  CHECK(skip.problems().front().message.find("only chains") != std::string::npos);
  schedule.programs[0].actions.push_back(forward);
  schedule.programs[0].actions[1].op = ir::ActionOp::kRecompute;
  CHECK_FALSE(csv_of(graph, schedule, CsvLevel::kCompute).ok());
}
