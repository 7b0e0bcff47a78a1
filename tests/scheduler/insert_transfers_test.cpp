#include "scheduler/lowering/insert_transfers.h"

#include <doctest/doctest.h>

#include "scheduler/validate/check_schedule.h"
#include "tests/scheduler/helpers.h"
#include "tests/scheduler/random_stages.h"

using namespace graphpipe;
using namespace graphpipe::tests;

namespace {

size_t count_ops(const Schedule& schedule, ActionOp op) {
  size_t count = 0;
  for (const ir::Program& program : schedule.programs)
    for (const Action& a : program.actions) count += a.op == op;
  return count;
}

}  // namespace

TEST_CASE("the lowering equals PyTorch's token for token") {
  const std::string comms = read_schedule("upstream/pytorch/zb1p_2rank_2stagep_comms.csv");
  Schedule schedule = parse_csv(read_schedule("upstream/pytorch/zb1p_2rank_2stagep_compute.csv"));
  files::merge_backwards(schedule);
  int64_t micro_batches = 0;
  for (const Action& a : schedule.programs[0].actions) micro_batches = std::max(micro_batches, a.range.last);
  const StageGraph graph = chain_stages({.ranks = 2, .chunks = 2, .micro_batches = micro_batches});
  const Schedule lowered = *insert_transfers(graph, schedule);
  const auto csv = files::csv_of(graph, lowered, files::CsvLevel::kCommunication);
  REQUIRE(csv.ok());
  CHECK(files::print_schedule_csv(*csv) == without_idle_cells(comms));
}

TEST_CASE("stages with different micro-batches exchange the intersections of their ranges") {
  std::vector<StandaloneStage> stages(2);
  stages[0].choice = {.devices = {ir::DeviceId(0)}, .micro_batch = Samples(4)};
  stages[1].choice = {.devices = {ir::DeviceId(1), ir::DeviceId(2)}, .micro_batch = Samples(3)};
  stages[1].predecessors = {StageId(0)};
  const StageGraph graph = standalone_graph(stages, Samples(8));
  const ir::Cluster cluster = standalone_cluster(3);
  const Schedule schedule = *insert_transfers(graph, *order_gpipe({.graph = graph, .cluster = cluster}));
  std::string sends;
  for (const Action& a : schedule.programs[0].actions)
    if (a.op == ActionOp::kSendForward) sends += ir::print_action(a) + " ";
  // Replica 0 takes [0,1) [3,4) [6,7), replica 1 [1,3) [4,6) [7,8); items of stage 0 are [0,4) [4,8).
  CHECK(sends ==
        "0SEND_F[0,1)e0p0s0 0SEND_F[3,4)e0p0s0 0SEND_F[1,3)e0p1s0 "
        "0SEND_F[6,7)e0p0s1 0SEND_F[4,6)e0p1s1 0SEND_F[7,8)e0p1s1 ");
}

TEST_CASE("nothing comes back over an edge without a gradient, and a frozen stage runs forwards only") {
  StageGraph graph = chain_stages({.ranks = 3, .micro_batches = 4});
  graph.stages[StageId(0)].has_backward = false;
  graph.edges[ir::EdgeId(0)].gradient_bytes = {};
  const ir::Cluster cluster = standalone_cluster(3);
  const Schedule schedule = *insert_transfers(graph, *order_1f1b({.graph = graph, .cluster = cluster}));
  CHECK(count_ops(schedule, ActionOp::kBackward) == 8);
  CHECK(count_ops(schedule, ActionOp::kSendBackward) == 4);
  CHECK(count_ops(schedule, ActionOp::kReceiveBackward) == 4);
  CHECK(check_schedule(graph, cluster, schedule).ok());
}

TEST_CASE("stages on one device exchange messages by the same rows, the receive after its send") {
  const StageGraph graph = chain_stages({.ranks = 1, .chunks = 2, .micro_batches = 2});
  const ir::Cluster cluster = standalone_cluster(1);
  const Schedule schedule = *insert_transfers(graph, *order_none({.graph = graph, .cluster = cluster}));
  REQUIRE(schedule.programs.size() == 1);
  const auto& list = schedule.programs[0].actions;
  size_t pairs = 0;
  for (size_t i = 0; i + 1 < list.size(); ++i) {
    if (!ir::is_send(list[i].op)) continue;
    CHECK(ir::is_receive(list[i + 1].op));
    CHECK(list[i + 1].range == list[i].range);
    ++pairs;
  }
  CHECK(pairs == 4);
  CHECK(check_schedule(graph, cluster, schedule).ok());
}

TEST_CASE("replicas and copies of shared weights reduce once, in one order on all devices, before the steps") {
  StageGraph graph = chain_stages({.ranks = 3, .micro_batches = 4});
  for (ir::Stage& stage : graph.stages) stage.trainable_weight_bytes = stage.weight_bytes = Bytes(8);
  graph.stages[StageId(1)].choice.devices = {ir::DeviceId(1), ir::DeviceId(3)};
  graph.shared.push_back({ir::WeightGroupId(0), {StageId(0), StageId(2)}, Bytes(8)});
  const IdMap<StageId, int> groups = reduction_groups(graph);
  CHECK(groups[StageId(0)] == 0);
  CHECK(groups[StageId(1)] == 1);
  CHECK(groups[StageId(2)] == 0);
  const ir::Cluster cluster = standalone_cluster(4);
  const Schedule schedule = *insert_transfers(graph, *order_1f1b({.graph = graph, .cluster = cluster}));
  CHECK(count_ops(schedule, ActionOp::kReduceGradient) == 4);
  CHECK(count_ops(schedule, ActionOp::kStep) == 4);
  CHECK(check_schedule(graph, cluster, schedule).ok());
  CHECK(schedule.programs[3].actions.back() == *ir::parse_action("1r1STEP[0,4)v1"));
}

TEST_CASE("a recompute stands right before the backward that it serves") {
  StageGraph graph = chain_stages({.ranks = 2, .micro_batches = 3});
  graph.stages[StageId(0)].choice.recompute = true;
  const ir::Cluster cluster = standalone_cluster(2);
  const Schedule schedule = *insert_transfers(graph, *order_1f1b({.graph = graph, .cluster = cluster}));
  CHECK(count_ops(schedule, ActionOp::kRecompute) == 3);
  CHECK(check_schedule(graph, cluster, schedule).ok());
}

TEST_CASE("compute orders that cannot run are refused by name") {
  const StageGraph graph = chain_stages({.ranks = 2, .micro_batches = 2});
  const auto refused = [&](const char* text) {
    const Result<Schedule> lowered = insert_transfers(graph, *ir::parse_schedule(text));
    return lowered.ok() ? std::string() : lowered.problems().front().message;
  };
  CHECK(refused("device 0: 0F[0,1) 0B[0,1) 0F[1,2) 0B[1,2)\ndevice 1: 1F[0,1) 1F[1,2) 1B[0,1) 1B[1,2)")
            .find("device 0, action 1: 0B[0,1)") != std::string::npos);
  CHECK(refused("device 0: 1F[0,1)").find("belongs to another device") != std::string::npos);
  CHECK(refused("device 0: 0F[0,1) 0B[0,2)").find("no forward with the same samples") != std::string::npos);
  CHECK(refused("device 0: 5F[0,1)").find("is not a compute action of the plan") != std::string::npos);
}

TEST_CASE("with 1f1b the ring holds what is in flight and what has arrived ahead") {
  const StageGraph graph = chain_stages({.ranks = 4, .micro_batches = 16});
  const ir::Cluster cluster = standalone_cluster(4);
  const Schedule schedule = *insert_transfers(graph, *order_1f1b({.graph = graph, .cluster = cluster}));
  for (const StageId stage : graph.stage_ids()) {
    const int in_flight = static_cast<int>(4 - stage.index());
    CHECK(schedule.slots[stage] >= in_flight);
    CHECK(schedule.slots[stage] <= in_flight + 1);
  }
}
