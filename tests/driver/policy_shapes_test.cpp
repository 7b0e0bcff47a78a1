// What plan and compare answer for policies that order one shape of stages only, and for others beside them.

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "tests/driver/ask.h"

using namespace graphpipe::tests;

TEST_CASE("a plan that no schedule runs is refused with the policy's own reason and cure") {
  const Answer answer =
      ask({"plan", example_model("clip_like"), "--devices", "4", "--batch", "8", "--micro-batch", "2", "--loss",
           "contrastive:similarity", "--planner", "graphpipe", "--policy", "interleaved", "--execute", "graph", "-q"});
  CHECK(answer.code == 4);
  CHECK(holds(answer.err, "the plan found has no schedule: interleaved: "));
  CHECK(holds(answer.err, "use kfkb"));
}

TEST_CASE("branches are executed as a chain where the policy orders nothing else, and only there") {
  const auto with = [](const char* verb, const std::vector<std::string>& more) {
    std::vector<std::string> args{verb,     example_model("mmt"),         "--devices", "2",       "--batch", "8",
                                  "--loss", "cross_entropy:logits,label", "--cluster", "default", "--json",  "-q"};
    args.insert(args.end(), more.begin(), more.end());
    return ask(args);
  };
  for (const char* policy : {"v-half", "dualpipev", "interleaved", "kfkb"}) {
    CAPTURE(policy);
    const Answer answer = with("plan", {"--policy", policy});
    CAPTURE(answer.err);
    REQUIRE(answer.code == 0);
    CHECK(answer.object()["execute"] == (policy == std::string("kfkb") ? "graph" : "chain"));
  }
  const Answer as_graph = with("plan", {"--policy", "v-half", "--execute", "graph"});
  CHECK(as_graph.code == 4);
  CHECK(holds(as_graph.err, "the stages are not a chain; plan with --execute chain"));
  // Each row of a comparison is executed as its policy needs, whatever the one before.
  const auto steps = [&](const char* policies) {
    std::map<std::string, double> result;
    const nlohmann::json answer = with("compare", {"--planners", "auto", "--policies", policies}).object();
    for (const auto& plan : answer["plans"]) result[plan["policy"]] = plan["simulated_step"];
    return result;
  };
  const std::map<std::string, double> together = steps("v-half,kfkb");
  REQUIRE(together.size() == 2);
  CHECK(together.at("kfkb") == steps("kfkb").at("kfkb"));
  CHECK(together.at("v-half") == steps("v-half").at("v-half"));
}

TEST_CASE("more stages than devices are refused by policies of one stage a device, and planned for those of several") {
  const auto under = [](const char* policy) {
    return ask({"plan", example_model("mmt"), "--devices", "2", "--stages", "4", "--batch", "8", "--loss",
                "cross_entropy:logits,label", "--cluster", "default", "--policy", policy, "--json", "-q"});
  };
  const Answer refused = under("kfkb");
  CHECK(refused.code == 2);
  CHECK(holds(refused.err, "policy kfkb runs one stage on a device, of which there are 2"));
  CHECK(holds(refused.err, "interleaved, "));
  for (const char* policy : {"interleaved", "auto"}) {
    CAPTURE(policy);
    const Answer planned = under(policy);
    REQUIRE(planned.code == 0);
    CHECK(planned.object()["stages"].size() == 4);
  }
}

TEST_CASE("chunks that fit no device are refused with the memory that is missing") {
  const std::string cluster = (std::filesystem::temp_directory_path() / "graphpipe-small-devices.json").string();
  std::ofstream(cluster) << R"({"schema": "graphpipe.cluster/1", "devices": [
    {"name": "a", "host": 0, "memory_bytes": 60000, "flops_per_second": 5e10, "memory_bytes_per_second": 1e10,
     "launch_overhead_seconds": 1e-6},
    {"name": "b", "host": 0, "memory_bytes": 60000, "flops_per_second": 5e10, "memory_bytes_per_second": 1e10,
     "launch_overhead_seconds": 1e-6}],
    "levels": [{"group": 2, "latency_seconds": 5e-6, "bytes_per_second": 5e9}]})";
  for (const char* policy : {"interleaved", "zb-v"}) {
    CAPTURE(policy);
    const Answer answer = ask(gpt2("plan", {"--cluster", cluster, "--policy", policy, "--planner", "equal-split"}));
    CHECK(answer.code == 4);
    CHECK(holds(answer.err, "no plan was found that fits the devices: the one that comes closest needs "));
    CHECK(holds(answer.err, " more on device "));
  }
}
