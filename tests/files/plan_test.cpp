#include "files/plan.h"

#include <doctest/doctest.h>

#include <random>

#include "tests/files/random_plan.h"

namespace graphpipe::files {
namespace {

// The text of a small plan with one piece replaced.
std::string small_plan(std::string_view from = "", std::string_view to = "") {
  std::string text = R"({
 "schema": "graphpipe.plan/1",
 "loss": {"kind": "cross_entropy", "output": "y", "label": "label"}, "optimizer": "sgd", "batch": 8, "batch_norm": "train", "threads": 1, "seed": "7",
 "planner": "manual", "policy": "kfkb",
 "stages": [
  {"nodes": [0, 2], "devices": [0], "micro_batch": 2, "k": 1, "replica_mode": "split"},
  {"nodes": [1], "devices": [1, 2], "micro_batch": 4, "k": 2, "replica_mode": "round_robin"}
 ]
})";
  if (!from.empty()) {
    const size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    text.replace(at, from.size(), to);
  }
  return text;
}

std::string messages_of(const Diagnostics& problems) {
  std::string all;
  for (const Diagnostic& problem : problems) all += to_line(problem) + "\n";
  return all;
}

void check_plan_refused(std::string_view from, std::string_view to, std::string_view expected,
                        Code code = Code::kBadPlan) {
  const Result<ir::Plan> plan = parse_plan(small_plan(from, to));
  CAPTURE(to);
  REQUIRE_FALSE(plan.ok());
  const std::string all = messages_of(plan.problems());
  CAPTURE(all);
  CHECK(all.find(expected) != std::string::npos);
  CHECK(plan.problems()[0].code == code);
}

TEST_CASE("a plan that is written reads back the same") {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    CAPTURE(seed);
    const ir::Plan plan = tests::random_plan(seed);
    const std::string printed = print_plan(plan);
    CAPTURE(printed);
    const Result<ir::Plan> again = parse_plan(printed);
    if (!again.ok()) FAIL(messages_of(again.problems()));
    CHECK(*again == plan);
    CHECK(print_plan(*again) == printed);
    CHECK(print_plan_binary(*again) == print_plan_binary(plan));
    CHECK(print_plan_binary(plan) != print_plan_binary(tests::random_plan(seed + 1)));
  }
}

TEST_CASE("a plan written by hand may leave out what has a default") {
  const Result<ir::Plan> plan = parse_plan(small_plan());
  REQUIRE(plan.ok());
  CHECK(plan->batch == Samples(8));
  CHECK(plan->seed == 7);
  CHECK(plan->assignment.stage_of[ir::PlanNodeId(2)] == ir::StageId(0));
  CHECK(plan->assignment.choice[ir::StageId(1)].mode == ir::ReplicaMode::kRoundRobin);
  CHECK(plan->labels.empty());
  CHECK(plan->spec.loss.kind == "cross_entropy");
  CHECK(plan->spec.loss.label == ModelText("label"));
  CHECK_FALSE(plan->schedule.has_value());
  const Result<ir::Plan> shorter = parse_plan(small_plan(", \"k\": 1, \"replica_mode\": \"split\"", ""));
  REQUIRE(shorter.ok());
  CHECK(*shorter == *plan);
  CHECK(print_plan(*plan).find("{\n \"schema\": \"graphpipe.plan/1\",\n") == 0);
}

TEST_CASE("what is wrong is refused with the path of its field") {
  check_plan_refused("\"nodes\": [1]", "\"nodes\": [2]", "stages[1].nodes[0]: node 2 is in stage 0 already");
  check_plan_refused("\"nodes\": [1]", "\"nodes\": [5]", "stages[1].nodes[0]: is 5, but");
  check_plan_refused("\"nodes\": [1]", "\"nodes\": []", "stages[1].nodes: is empty");
  check_plan_refused("\"nodes\": [1]", "\"nodes\": [1], \"labels\": [\"a\"]",
                     "stages[0].labels: has 0 labels for 2 nodes");
  check_plan_refused("\"devices\": [0]", "\"devices\": [0, 0]",
                     "stages[0].devices[1]: is a device that stands here twice");
  check_plan_refused("\"devices\": [0]", "\"devices\": [-1]", "stages[0].devices[0]: must be from 0");
  check_plan_refused("\"micro_batch\": 2", "\"micro_batch\": 9", "stages[0].micro_batch: must be from 1 to 8, is 9");
  check_plan_refused("\"k\": 2", "\"k\": 0", "stages[1].k: must be from 1");
  check_plan_refused("\"k\": 2", "\"k\": 2, \"degree\": 0", "stages[1].degree: must be from 1");
  check_plan_refused("\"k\": 2", "\"k\": 2, \"alternatives\": [1, 2]", "stages[1].alternatives: has 2 numbers for 1");
  check_plan_refused("\"k\": 2", "\"k\": 2, \"alternatives\": [-1]", "stages[1].alternatives[0]: must be from 0");
  check_plan_refused("round_robin", "circular", "stages[1].replica_mode");
  check_plan_refused("\"sgd\"", "\"adem\"", "muon, is 'adem'");
  check_plan_refused("\"kfkb\"", "\"\\u001b[2J\"", "policy: must be lower-case letters, digits and '-', is '\\x1b[2J'");
  check_plan_refused("\"batch\": 8", "\"batch\": 0", "batch: must be from 1");
  check_plan_refused("\"threads\": 1", "\"threads\": 1, \"model_digest\": \"ABC\"", "model_digest: must be 64");
  check_plan_refused("\"kind\": \"cross_entropy\"", "\"kind\": \"\"", "loss.kind: is empty");
  check_plan_refused("\"label\": \"label\"", "\"options\": [{\"name\": \"a\", \"value\": 1}, {\"name\": \"a\"}]",
                     "loss.options[1].name: is an option that stands here twice");
}

TEST_CASE("the form is refused before the contents") {
  const Code form = Code::kMalformedFile;
  check_plan_refused("\"k\": 2", "\"k\": 2, \"cows\": 1", "stages[1].cows: unknown field", form);
  check_plan_refused("\"micro_batch\": 2", "\"microBatch\": 2", "did you mean 'micro_batch'", form);
  check_plan_refused("\"k\": 2", "\"k\": 2.5", "stages[1].k: must be an integer", form);
  check_plan_refused("\"k\": 2", "\"k\": \"2\"", "stages[1].k: must be an integer", form);
  check_plan_refused("\"k\": 2", "\"k\": null", "stages[1].k: must be an integer", form);
  check_plan_refused("\"k\": 2", "\"k\": 1e400", "stages[1].k: the number does not fit", form);
  check_plan_refused("\"k\": 2", "\"k\": 3000000000", "stages[1].k: must be an integer from", form);
  check_plan_refused("\"k\": 2", "\"k\": 2, \"k\": 3", "stages[1].k: this field stands here twice", form);
  check_plan_refused("\"nodes\": [1]", "\"nodes\": 1", "stages[1].nodes: must be a list", form);
  check_plan_refused("\"stages\": [", "\"bindings\": [[]], \"stages\": [", "bindings[0]: must be an object", form);
  check_plan_refused("\"7\"", "\"-7x\"", "seed: must be an integer", form);
  check_plan_refused("plan/1", "plan/2", "newer version", form);
  check_plan_refused("plan/1", "cluster/1", "schema: must be graphpipe.plan/1", form);
  check_plan_refused("\"schema\": \"graphpipe.plan/1\",", "", "the first field must be", form);
  CHECK_FALSE(parse_plan("").ok());
  CHECK_FALSE(parse_plan("{}").ok());
  CHECK_FALSE(parse_plan("[]").ok());
  CHECK_FALSE(parse_plan(small_plan() + "x").ok());
}

TEST_CASE("all bad fields are reported at once") {
  const Result<ir::Plan> plan =
      parse_plan(R"({"schema": "graphpipe.plan/1", "batch": -1, "optimizer": "x", "threads": 0, "stages": []})");
  REQUIRE_FALSE(plan.ok());
  CHECK(plan.problems().size() == 5);
}

}  // namespace
}  // namespace graphpipe::files
