#include "codegen/loss_updates.h"

#include <doctest/doctest.h>

#include <random>

using namespace graphpipe;
using codegen::loss_updates;
using wire::ActionOp;
using wire::SampleRange;

namespace {

using Ranges = std::vector<SampleRange>;

Ranges in_parts_of(int64_t size, int64_t batch) {
  Ranges ranges;
  for (int64_t first = 0; first < batch; first += size) ranges.push_back({first, std::min(first + size, batch)});
  return ranges;
}

/// A chain whose stages, one a device, take micro-batches of these sizes and, where it says so, step after each.
ir::Schedule stepping_chain(const std::vector<int64_t>& sizes, const std::vector<bool>& steps, int64_t batch) {
  ir::Schedule schedule;
  for (size_t stage = 0; stage < sizes.size(); ++stage) {
    ir::Program program{.device = ir::DeviceId(stage), .actions = {}};
    for (const SampleRange range : in_parts_of(sizes[stage], batch)) {
      const auto number = static_cast<int32_t>(stage);
      program.actions.push_back({.op = ActionOp::kForward, .stage = number, .range = range});
      program.actions.push_back({.op = ActionOp::kBackward, .stage = number, .range = range});
      if (steps[stage]) program.actions.push_back({.op = ActionOp::kStep, .stage = number, .range = range});
    }
    schedule.programs.push_back(std::move(program));
  }
  return schedule;
}

}  // namespace

TEST_CASE("every item of the loss lies in one of the ranges that divide it, which cover the step") {
  std::mt19937_64 random(5);
  for (int round = 0; round < 300; ++round) {
    CAPTURE(round);
    const int64_t batch = 1 + static_cast<int64_t>(random() % 24);
    std::vector<int64_t> sizes;
    std::vector<bool> steps;
    for (size_t stage = 0; stage < 3; ++stage) {
      sizes.push_back(1 + static_cast<int64_t>(random() % static_cast<uint64_t>(batch)));
      steps.push_back(random() % 2 == 0);
    }
    const ir::Schedule schedule = stepping_chain(sizes, steps, batch);
    Ranges found = loss_updates(ir::StageId(2u), schedule);
    CHECK(found.size() != 1);
    if (found.empty()) found = {{0, batch}};
    int64_t next = 0;
    for (const SampleRange& range : found) {
      CHECK(range.first == next);
      next = range.last;
    }
    CHECK(next == batch);
    for (const SampleRange& item : in_parts_of(sizes[2], batch))
      CHECK(std::ranges::count_if(found,
                                  [&](const SampleRange& range) { return wire::intersect(item, range) == item; }) == 1);
    // A stage with weights has its own updates.
    if (steps[2] && sizes[2] < batch) CHECK(found == in_parts_of(sizes[2], batch));
  }
}

TEST_CASE("a loss that trains nothing is divided by the shortest updates that hold its items") {
  const auto of = [](const std::vector<int64_t>& sizes, const std::vector<bool>& steps) {
    return loss_updates(ir::StageId(2u), stepping_chain(sizes, steps, 8));
  };
  CHECK(of({4, 2, 2}, {true, true, false}) == in_parts_of(2, 8));
  // The loss works on four samples at a time: no divisor of two of them is its own.
  CHECK(of({2, 2, 4}, {true, true, false}) == in_parts_of(4, 8));
  CHECK(of({2, 2, 3}, {true, true, false}) == Ranges{{0, 6}, {6, 8}});
  CHECK(of({2, 2, 8}, {true, true, false}).empty());
  CHECK(of({2, 2, 2}, {false, false, false}).empty());
}
