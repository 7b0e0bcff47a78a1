#include "scheduler/lowering/items.h"

#include <doctest/doctest.h>

#include <random>

#include "tests/scheduler/helpers.h"

using namespace graphpipe;
using namespace graphpipe::tests;

namespace {

/// Items of one stage, whose replicas have the ranges that their number allows: of equal lengths and gaps, or not.
Schedule forwards_of(std::mt19937_64& random, int replicas, bool is_even) {
  const auto below = [&](uint64_t limit) { return static_cast<int64_t>(random() % limit); };
  Schedule schedule;
  for (int replica = 0; replica < replicas; ++replica) {
    ir::Program& program = schedule.programs.emplace_back(ir::Program{.device = ir::DeviceId(size_t(replica))});
    int64_t sample = below(3);
    for (int64_t count = below(9); count > 0; --count) {
      const int64_t length = is_even ? 2 : 1 + below(4), gap = is_even ? replicas : below(3);
      Action forward{.op = ActionOp::kForward, .stage = 0, .replica = replica, .range = {sample, sample + length}};
      program.actions.push_back(forward);
      sample += length + gap;
    }
  }
  return schedule;
}

}  // namespace

TEST_CASE("items are found by their samples, whether they have one length or not") {
  std::mt19937_64 random(1);
  for (int round = 0; round < 300; ++round) {
    CAPTURE(round);
    const int replicas = 1 + round % 3;
    std::vector<StandaloneStage> stages(1);
    for (int r = 0; r < replicas; ++r) stages[0].choice.devices.push_back(ir::DeviceId(static_cast<size_t>(r)));
    const StageGraph graph = standalone_graph(stages, Samples(100));
    const ItemTable items(graph, forwards_of(random, replicas, round % 2 == 0));
    for (int replica = 0; replica < replicas; ++replica) {
      const auto [first, last] = items.of(StageId(0u), replica);
      for (int64_t sample = 0; sample < 60; ++sample) {
        ItemIndex ends_after = first;
        while (ends_after < last && items[ends_after].range.last <= sample) ++ends_after;
        for (const ItemIndex number : {0, 3, static_cast<ItemIndex>(sample)})
          CHECK(items.first_after(StageId(0u), replica, sample, number) == ends_after);
        for (int64_t length = 1; length < 4; ++length) {
          const bool holds = ends_after < last && items[ends_after].range.first <= sample &&
                             sample + length <= items[ends_after].range.last;
          CHECK(items.containing(StageId(0u), replica, {sample, sample + length}) == (holds ? ends_after : -1));
        }
      }
    }
  }
}
