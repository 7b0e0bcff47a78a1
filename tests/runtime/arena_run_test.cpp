// Whole runs with an arena: the bits of runs without one, and steps that allocate nothing and fault no page.

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/runtime/chain_plan.h"
#include "tests/runtime/run_programs.h"
#include "tests/runtime/two_stage_plan.h"

using namespace graphpipe::runtime;
using namespace graphpipe::runtime::test;

namespace {

constexpr double kArenaRunSteps = 60;

/// What rank 0 reports; the weights are in FOLDER/TAG.w.
std::string arena_run(const std::vector<DeviceProgram>& programs, const std::string& folder, const std::string& tag,
                      const std::vector<std::string>& more) {
  std::vector<std::string> words = {"--data",
                                    folder,
                                    "--steps",
                                    std::to_string(static_cast<int>(kArenaRunSteps)),
                                    "--lr",
                                    "0.05",
                                    "--json",
                                    "--transport",
                                    "shm",
                                    "--momentum",
                                    "0.5",
                                    "--save",
                                    folder + "/" + tag + ".w"};
  words.insert(words.end(), more.begin(), more.end());
  return run_all(programs, folder, words).output;
}

/// Messages are released when a peer has taken them, so that a lifetime may grow until every order has been seen.
void check_arena_run(const std::vector<DeviceProgram>& programs, const std::string& folder,
                     std::vector<std::string> flags = {}) {
  const std::string with = arena_run(programs, folder, "with", flags);
  flags.emplace_back("--no-arena");
  const std::string without = arena_run(programs, folder, "without", flags);
  CHECK(numbers_of(with, "losses") == numbers_of(without, "losses"));
  CHECK(numbers_of(with, "losses").size() == kArenaRunSteps);
  CHECK(read_file(folder + "/with.w") == read_file(folder + "/without.w"));
  CHECK(without.find("arena_bytes") == std::string::npos);
  const std::vector<double> steps = numbers_of(with, "arena_steps"), fallbacks = numbers_of(with, "fallback_steps");
  REQUIRE(steps.size() == programs.size());
  for (size_t device = 0; device < programs.size(); ++device) {
    CAPTURE(device);
    CHECK(steps[device] >= kArenaRunSteps - 12);
    CHECK(fallbacks[device] <= (programs.size() == 1 ? 4 : 20));
    CHECK(numbers_of(with, "arena_bytes")[device] > 0);
    CHECK(numbers_of(with, "page_faults")[device] <= 8);
    if (programs.size() == 1) CHECK(numbers_of(with, "fallbacks")[device] == 0);
  }
  std::filesystem::remove_all(folder);
}

}  // namespace

TEST_CASE("runs with an arena have the bits of runs without, and their steps allocate nothing") {
  const PlanShape one{.one_device = true}, two{}, adamw{.optimizer = "adamw"}, recompute{.recompute = true};
  for (const PlanShape& shape : {one, two, adamw, recompute})
    check_arena_run(TwoStagePlan(shape).programs(), make_folder(shape.shared, 19));
}

TEST_CASE("kinds of steps have plans of their own: those without an update, and the rest of an epoch") {
  const PlanShape shape{.one_device = true};
  check_arena_run(TwoStagePlan(shape).programs(), make_folder(false, 16), {"--accumulate", "2"});
  check_arena_run(TwoStagePlan(shape).programs(), make_folder(false, 19), {"--last-batch", "train"});
}

TEST_CASE("versions of weights that outlive their step are kept apart") {
  for (const Versions versions : {Versions::kStashing, Versions::kTwoBuffers}) {
    const ChainShape shape{.stages = 2, .versions = versions, .per_update = versions == Versions::kTwoBuffers ? 3 : 1};
    const ChainPlan plan(shape);
    check_arena_run(plan.programs(), make_chain_folder(shape.stages, 2 * shape.micro_batch * shape.micro_batches));
  }
}

TEST_CASE("the optimizer's state is there before the first step, so that the first two are alike") {
  const PlanShape shape{.optimizer = "adamw", .one_device = true};
  const std::string folder = make_folder(false, 16);
  const std::string taken = arena_run(TwoStagePlan(shape).programs(), folder, "with", {});
  CHECK(numbers_of(taken, "arena_steps") == std::vector<double>{kArenaRunSteps - 2});
  std::filesystem::remove_all(folder);
}
