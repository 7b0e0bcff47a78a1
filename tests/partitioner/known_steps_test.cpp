#include "partitioner/known_steps.h"

#include <doctest/doctest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

namespace graphpipe::partitioner {
namespace {

ir::Assignment plan_of(int64_t micro_batch) {
  ir::Assignment plan;
  plan.stage_of.push_back(ir::StageId(0u));
  plan.choice.push_back({.devices = {ir::DeviceId(0u)}, .micro_batch = Samples(micro_batch)});
  return plan;
}

TEST_CASE("threads that ask for one plan at the same time have it evaluated once, and hear the same") {
  constexpr int kThreads = 4;
  constexpr int64_t kPlans = 50;
  std::atomic<int> evaluated = 0, wrong = 0;
  KnownSteps known([&](const ir::Assignment& plan) {
    ++evaluated;
    return static_cast<double>(plan.choice[ir::StageId(0u)].micro_batch.count);
  });
  std::vector<std::jthread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&] {
      for (int64_t size = 1; size <= kPlans; ++size)
        if (known.of(plan_of(size)) != static_cast<double>(size)) ++wrong;
    });
  threads.clear();
  CHECK(evaluated == kPlans);
  CHECK(wrong == 0);
}

TEST_CASE("a plan whose evaluation failed is evaluated again") {
  int asked = 0;
  KnownSteps known([&](const ir::Assignment&) -> double {
    if (++asked == 1) throw std::runtime_error("ended");
    return 2;
  });
  CHECK_THROWS_AS(known.of(plan_of(1)), std::runtime_error);
  CHECK(known.of(plan_of(1)) == 2);
  CHECK(known.of(plan_of(1)) == 2);
  CHECK(asked == 2);
}

}  // namespace
}  // namespace graphpipe::partitioner
