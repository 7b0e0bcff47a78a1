// The file of a paced run: what is printed reads back, and nothing else does.

#include "wire/pace_plan.h"

#include <doctest/doctest.h>

namespace graphpipe::wire {
namespace {

PacePlan small_pace_plan() {
  PacePlan plan{.digest = std::string(64, 'a'), .batch = 8, .scale = 2.5, .share = 0.125, .start_nanoseconds = 7};
  plan.links = 2;
  plan.stages = {{.micro_batch = 2, .replicas = 2, .slots = 3, .gradient_bytes = 1 << 20, .add_byte = 1e-10},
                 {.micro_batch = 4, .mode = ReplicaMode::kRoundRobin, .recompute = true}};
  plan.edges = {{.from = 0, .to = 1, .bytes = 4096, .gradients = 2},
                {.from = 0, .to = 1, .bytes = 4, .of_sample = false}};
  plan.places = {{0, 0, 0}, {0, 1, 1}, {1, 0, 1}};
  plan.groups = {{.bytes = 64, .stages = {0, 1}}};
  plan.ways = {{.from = 0, .to = 1, .link = 0, .latency = 1e-5, .byte = 1.0 / 3}, {.from = 1, .to = 0, .link = 1}};
  plan.programs.resize(2);
  plan.programs[0] = {{.row = {.op = ActionOp::kForward, .stage = 0, .range = {0, 1}, .slot = 2, .version = 3},
                       .nanoseconds = 1234567890123},
                      {.row = {.op = ActionOp::kSendForward,
                               .stream = Stream::kCommunication,
                               .stage = 0,
                               .range = {0, 1},
                               .edge = 1,
                               .peer_replica = 0,
                               .slot = 2,
                               .overlaps_next = true}}};
  return plan;
}

TEST_CASE("a pace plan reads back as it was printed") {
  const PacePlan plan = small_pace_plan();
  const std::optional<PacePlan> read = parse_pace_plan(print_pace_plan(plan));
  REQUIRE(read);
  CHECK(*read == plan);
}

TEST_CASE("what names something that the plan lacks is refused") {
  const std::string text = print_pace_plan(small_pace_plan());
  CHECK(!parse_pace_plan(""));
  CHECK(!parse_pace_plan("graphpipe-pace 2\n"));
  CHECK(!parse_pace_plan(text + "place 2 0 0\n"));
  CHECK(!parse_pace_plan(text + "place 0 0 2\n"));
  CHECK(!parse_pace_plan(text + "way 0 1 2 0 0\n"));
  CHECK(!parse_pace_plan(text + "group 8 1 5\n"));
  CHECK(!parse_pace_plan(text + "group 8 99999999999\n"));
  CHECK(!parse_pace_plan(text + "edge 0 1 8 1\n"));
  CHECK(!parse_pace_plan(text + "edge 0 1 8 1 1 9\n"));
  CHECK(!parse_pace_plan(text + "action 2 0 0 0 0 0 1 -1 -1 0 0 0 5\n"));
  CHECK(!parse_pace_plan(text + "action 0 99 0 0 0 0 1 -1 -1 0 0 0 5\n"));
  CHECK(!parse_pace_plan(text + "action 0 0 0 0 0 0 1 -1 -1 0 0 0 -5\n"));
  CHECK(!parse_pace_plan(text + "unknown 1\n"));
}

TEST_CASE("numbers that no plan has are refused") {
  const auto refused = [](void (*change)(PacePlan&)) {
    PacePlan plan = small_pace_plan();
    change(plan);
    return !parse_pace_plan(print_pace_plan(plan));
  };
  CHECK(!refused([](PacePlan&) {}));
  CHECK(refused([](PacePlan& plan) { plan.batch = 0; }));
  CHECK(refused([](PacePlan& plan) { plan.start_nanoseconds = -1; }));
  CHECK(refused([](PacePlan& plan) { plan.stages[0].slots = 0; }));
  CHECK(refused([](PacePlan& plan) { plan.stages[0].add_byte = -1; }));
  CHECK(refused([](PacePlan& plan) { plan.stages[0].gradient_bytes = INT64_MAX; }));
  CHECK(refused([](PacePlan& plan) { plan.edges[0].bytes = INT64_MAX; }));
  CHECK(refused([](PacePlan& plan) { plan.ways[0].latency = -1; }));
  CHECK(refused([](PacePlan& plan) { plan.programs[0][0].row.range = {0, 9}; }));
  CHECK(refused([](PacePlan& plan) { plan.programs[0][0].row.range = {-1, 1}; }));
  CHECK(refused([](PacePlan& plan) { plan.programs[0][0].row.slot = -1; }));
  CHECK(refused([](PacePlan& plan) { plan.programs[0][0].row.slot = 3; }));
  CHECK(refused([](PacePlan& plan) { plan.programs[0][0].row.replica = 2; }));
  CHECK(refused([](PacePlan& plan) { plan.programs[0][1].row.edge = -1; }));
  CHECK(refused([](PacePlan& plan) { plan.programs[0][1].row.peer_replica = 1; }));
  CHECK(refused([](PacePlan& plan) { plan.places.pop_back(); }));
  CHECK(refused([](PacePlan& plan) { plan.places.push_back(plan.places.back()); }));
  const std::string text = print_pace_plan(small_pace_plan());
  const std::string step = text.substr(text.find("step"), text.find("stage") - text.find("step"));
  CHECK(!parse_pace_plan(text + step));
  CHECK(!parse_pace_plan(text + "group 8 65536 0\n"));
}

}  // namespace
}  // namespace graphpipe::wire
