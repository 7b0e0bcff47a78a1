// Plan files that a user has edited: what the fields say together is what trains, or the file is refused.

#include <doctest/doctest.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "support/text.h"
#include "tests/driver/ask.h"
#include "tests/support/onnx_text.h"

using namespace graphpipe::tests;

namespace edited_plan_test {
namespace {

using Json = nlohmann::ordered_json;
using graphpipe::testing::TemporaryFolder;

std::string model_path() { return GRAPHPIPE_SOURCE_DIR "/tests/data/models/gpt2_like/model.onnx"; }

/// The plan of some flags, as a file that is edited.
class Edited {
 public:
  explicit Edited(const std::vector<std::string>& flags) {
    std::vector<std::string> words{"plan", model_path(), "--loss",  "cross_entropy:logits,labels",
                                   "-q",   "--cluster",  "default", "--batch",
                                   "8",    "-o",         file_};
    words.insert(words.end(), flags.begin(), flags.end());
    const Answer made = ask(words);
    CAPTURE(made.err);
    REQUIRE(made.code == 0);
    plan_ = Json::parse(std::ifstream(file_));
  }

  /// What `plan --plan` says of the edited file.
  Answer plan(const std::function<void(Json&)>& edit) const {
    write(edit);
    return ask({"plan", model_path(), "--plan", file_, "-q"});
  }
  /// The plan that `plan --plan` makes of the edited file.
  Json made_again(const std::function<void(Json&)>& edit) const {
    write(edit);
    const std::string other = folder_ / "again.json";
    const Answer made = ask({"plan", model_path(), "--plan", file_, "-q", "-o", other});
    CAPTURE(made.err);
    REQUIRE(made.code == 0);
    return Json::parse(std::ifstream(other));
  }
  Answer simulate(const std::function<void(Json&)>& edit) const {
    write(edit);
    return ask({"simulate", file_, "-q"});
  }

 private:
  void write(const std::function<void(Json&)>& edit) const {
    Json plan = plan_;
    edit(plan);
    std::ofstream(file_) << plan.dump();
  }

  TemporaryFolder folder_;
  std::string file_ = folder_ / "plan.json";
  Json plan_;
};

void check_refused(const Answer& answer, const std::string& place) {
  CAPTURE(answer.err);
  CHECK(answer.code == 3);
  CHECK(holds(answer.err, place));
}

}  // namespace
}  // namespace edited_plan_test

using namespace edited_plan_test;

TEST_CASE("a plan whose micro-batches or replicas were edited without its schedule is refused") {
  const Edited chain({"--devices", "2", "--planner", "sequential", "--micro-batch", "4"});
  CHECK(chain.simulate([](Json&) {}).code == 0);
  for (const int size : {2, 8})
    check_refused(chain.simulate([&](Json& plan) { plan["stages"][0]["micro_batch"] = size; }),
                  "stages[0].micro_batch");
  const Edited divided({"--devices", "2", "--planner", "data-parallel", "--micro-batch", "4"});
  const Edited in_turn({"--devices", "2", "--policy", "parameter-server", "--micro-batch", "2"});
  for (const Edited* replicas : {&divided, &in_turn}) {
    CHECK(replicas->plan([](Json&) {}).code == 0);
    for (const int size : {1, 3, 8})
      check_refused(replicas->plan([&](Json& plan) { plan["stages"][0]["micro_batch"] = size; }), "micro_batch");
  }
  check_refused(divided.plan([](Json& plan) { plan["stages"][0]["replica_mode"] = "round_robin"; }), "replica_mode");
  check_refused(in_turn.plan([](Json& plan) { plan["stages"][0]["replica_mode"] = "split"; }), "micro_batch");
}

TEST_CASE("a plan whose k was edited without its schedule is refused, where the order shows it") {
  const Edited plan({"--devices", "2", "--planner", "sequential", "--stages", "2", "--micro-batch", "1"});
  for (const int k : {2, 3}) {
    const auto edit = [&](Json& edited) { edited["stages"][0]["k"] = k; };
    for (const Answer& refused : {plan.plan(edit), plan.simulate(edit)}) {
      check_refused(refused, "stages[0].k");
      CHECK(holds(refused.err, graphpipe::text("it is ", k, ", and in the plan's schedule it is 1")));
      CHECK(holds(refused.err, "remove the plan's schedule"));
    }
  }
  // Made with another k, it is taken, and refused with the old one.
  const Json doubled = plan.made_again([](Json& edited) {
    edited.erase("schedule");
    for (Json& stage : edited["stages"]) stage["k"] = 2;
  });
  CHECK(plan.simulate([&](Json& edited) { edited = doubled; }).code == 0);
  check_refused(plan.simulate([&](Json& edited) {
    edited = doubled;
    edited["stages"][1]["k"] = 1;
  }),
                "in the plan's schedule it is 2");
}

TEST_CASE("a plan whose batch, recomputation, devices or nodes were edited without its schedule is refused") {
  const Edited plan({"--devices", "2", "--planner", "sequential", "--stages", "2", "--micro-batch", "2"});
  for (const int batch : {4, 16}) {
    const Answer refused = plan.simulate([&](Json& edited) { edited["batch"] = batch; });
    check_refused(refused, "batch");
    CHECK(holds(refused.err, graphpipe::text("the plan's schedule is of 8 samples, which are not ", batch)));
  }
  check_refused(plan.simulate([](Json& edited) { edited["drain_every"] = 2; }), "which are not 2 batches of 8");
  const auto recompute = [](Json& edited) { edited["stages"][1]["recompute"] = true; };
  for (const Answer& refused : {plan.simulate(recompute), plan.plan(recompute)}) {
    check_refused(refused, "stages[1].recompute");
    CHECK(holds(refused.err, "it is true, and the plan's schedule repeats no forward of the stage"));
  }
  const Json repeating = plan.made_again([&](Json& edited) {
    edited.erase("schedule");
    recompute(edited);
  });
  CHECK(plan.simulate([&](Json& edited) { edited = repeating; }).code == 0);
  check_refused(plan.simulate([&](Json& edited) {
    edited = repeating;
    edited["stages"][1]["recompute"] = false;
  }),
                "it is false, and the plan's schedule repeats forwards");
  check_refused(
      plan.simulate([](Json& edited) { std::swap(edited["stages"][0]["devices"], edited["stages"][1]["devices"]); }),
      "belongs on another device; correct the action, or lower the compute order again; where the plan was "
      "edited, remove its schedule");
}

TEST_CASE("a plan whose machines have other numbers than it was made for is simulated with these, and says so") {
  const TemporaryFolder folder;
  const std::string file = folder / "plan.json";
  REQUIRE(ask({"plan", model_path(), "--loss", "cross_entropy:logits,labels", "-q", "--cluster", "default", "--devices",
               "2", "--stages", "2", "--batch", "8", "-o", file})
              .code == 0);
  const Json made = Json::parse(std::ifstream(file));
  const auto answers = [&](const Json& plan) {
    std::ofstream(file) << plan.dump();
    return std::vector<Answer>{ask({"simulate", file}), ask({"plan", model_path(), "--plan", file}),
                               ask({"generate", file, "-o", folder / "out"})};
  };
  const std::string note = "the plan's machines have other numbers than those that it was made for";
  for (const Answer& answer : answers(made)) {
    CHECK(answer.code == 0);
    CHECK_FALSE(holds(answer.err, note));
  }
  for (const char* field : {"flops_per_second", "memory_bytes_per_second"}) {
    Json edited = made;
    edited["cluster"]["devices"][1][field] = 2e9;
    for (const Answer& answer : answers(edited)) {
      CAPTURE(answer.err);
      CHECK(answer.code == 0);
      CHECK(holds(answer.err, note));
      CHECK(holds(answer.err, "--cluster FILE"));
    }
  }
  // A plan of the new numbers knows them.
  Json edited = made;
  edited["cluster"]["levels"][0]["bytes_per_second"] = 1e6;
  std::ofstream(file) << edited.dump();
  const std::string again = folder / "again.json";
  CHECK(holds(ask({"plan", model_path(), "--plan", file, "-o", again}).err, note));
  CHECK_FALSE(holds(ask({"simulate", again}).err, note));
  // By hand, without a digest, nothing is known.
  edited.erase("cluster_digest");
  for (const Answer& answer : answers(edited)) CHECK_FALSE(holds(answer.err, note));
}

TEST_CASE("a plan whose policy is another than its schedule's is refused, and without the schedule ordered anew") {
  const Edited plan(
      {"--devices", "2", "--stages", "2", "--planner", "sequential", "--policy", "pipedream", "--micro-batch", "2"});
  const auto rename = [](Json& edited) { edited["policy"] = "kfkb"; };
  for (const Answer& refused : {plan.plan(rename), plan.simulate(rename)}) {
    check_refused(refused, "policy");
    CHECK(holds(refused.err, "the plan's schedule is one of 'pipedream'"));
  }
  check_refused(plan.plan([](Json& edited) { edited["schedule"]["policy"] = "2bw"; }), "one of '2bw'");
  CHECK(plan.plan([](Json& edited) {
              edited["policy"] = "kfkb";
              edited["drain_every"] = 1;
              edited.erase("schedule");
            })
            .code == 0);
}

TEST_CASE("a plan of the policy auto, whose schedule is that of another, is read again") {
  const Edited plan(
      {"--devices", "2", "--stages", "2", "--planner", "sequential", "--policy", "auto", "--micro-batch", "2"});
  CHECK(plan.plan([](Json& edited) { CHECK(edited["schedule"]["policy"] != "auto"); }).code == 0);
  std::string ordered_by;
  const Answer again = plan.plan([&](Json& edited) { ordered_by = edited["schedule"]["policy"]; });
  CHECK(again.out.find("policy auto (" + ordered_by + ")") != std::string::npos);
  CHECK(plan.simulate([](Json&) {}).code == 0);
}

TEST_CASE("what a plan file asks for and cannot be is a problem of the file, not of flags that nobody gave") {
  const Edited plan({"--devices", "2", "--planner", "sequential", "--micro-batch", "4"});
  const auto without_order = [&](const std::function<void(Json&)>& edit) {
    return plan.plan([&](Json& edited) {
      edited.erase("schedule");
      edit(edited);
    });
  };
  check_refused(without_order([](Json& edited) { edited["policy"] = "inference"; }), "plan.json");
  check_refused(without_order([](Json& edited) { edited["loss"]["label"] = ""; }), "needs a label");
  check_refused(without_order([](Json& edited) { edited["loss"]["output"] = ""; }), "needs an output");
  check_refused(without_order([](Json& edited) {
                  edited["loss"]["options"] = Json::array({{{"name", "ignor"}, {"value", "2"}}});
                }),
                "no such option");
  check_refused(plan.plan([](Json& edited) { edited["planner"] = "zz"; }), "there is no planner 'zz'");
  check_refused(plan.plan([](Json& edited) { edited["cluster"]["schema"] = "graphpipe.cluster/99"; }),
                "cluster.schema");
  check_refused(without_order([](Json& edited) { edited["batch"] = 1'000'000; }), "forwards in a step; at most");
}

TEST_CASE("a policy that runs forwards only orders no plan of a training, nor the other way round") {
  const TemporaryFolder folder;
  const std::string file = folder / "plan.json";
  const auto asked = [&](const std::string& made_with, const std::string& policy) {
    std::vector<std::string> words{"plan", model_path(), "--cluster", "default", "--devices", "2", "-q", "-o", file};
    words.insert(words.end(), {"--policy", made_with});
    if (made_with != "inference") words.insert(words.end(), {"--loss", "cross_entropy:logits,labels"});
    REQUIRE(ask(words).code == 0);
    return ask({"plan", model_path(), "--plan", file, "--policy", policy, "-q"});
  };
  check_refused(asked("1f1b", "inference"), "the plan was made with 'training', this is 'forwards only'");
  check_refused(asked("inference", "1f1b"), "the plan was made with 'forwards only', this is 'training'");
  CHECK(asked("inference", "inference").code == 0);
  CHECK(asked("1f1b", "gpipe").code == 0);
}
