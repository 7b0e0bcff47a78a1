// Ranks on cores of their own.

#include <doctest/doctest.h>
#include <sched.h>

#include <filesystem>
#include <thread>

#include "runtime/launch/pin_to_cores.h"
#include "tests/runtime/run_programs.h"
#include "tests/runtime/two_stage_plan.h"
#include "wire/exit_codes.h"

using namespace graphpipe::runtime;
using namespace graphpipe::runtime::test;

namespace {

RunEnd pinned_run(const std::string& folder, const std::string& threads) {
  const PlanShape shape{.one_device = true};
  ProcessGroup group(TwoStagePlan(shape).programs(), folder,
                     {"--data", folder, "--steps", "2", "--lr", "0.1", "--json", "--pin", "--threads", threads});
  return group.wait(60).front();
}

}  // namespace

TEST_CASE("a pinned rank trains, and one without cores of its own is refused") {
  const std::string folder = make_folder(false, 16);
  const RunEnd good = pinned_run(folder, "1"), refused = pinned_run(folder, "1000");
  CHECK(good.exit_code == 0);
  CHECK(numbers_of(good.output, "losses").size() == 2);
  CHECK(refused.exit_code == graphpipe::wire::kExitUsage);
  CHECK(refused.errors.find("--pin: rank 0 of 1000 threads") != std::string::npos);
  std::filesystem::remove_all(folder);
}

TEST_CASE("a pinned thread may use the rank's cores and no others") {
  cpu_set_t allowed, own;
  REQUIRE(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
  const int cores = CPU_COUNT(&allowed), last = cores - 1;
  std::thread([&] {  // the affinity is a thread's
    CHECK_FALSE(pin_to_cores(last, cores, 2));
    CHECK(pin_to_cores(last, cores, 1));
    REQUIRE(sched_getaffinity(0, sizeof own, &own) == 0);
  })
      .join();
  CHECK(CPU_COUNT(&own) == 1);
  CPU_AND(&own, &own, &allowed);
  CHECK(CPU_COUNT(&own) == 1);
}
