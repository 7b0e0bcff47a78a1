// What plan and compare answer on the example models.

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "scheduler/policies/policies.h"
#include "tests/driver/ask.h"
#include "tests/support/onnx_text.h"

using namespace graphpipe::tests;
namespace scheduler = graphpipe::scheduler;

TEST_CASE("data parallelism uses every device that a sample is there for, and says where there are fewer") {
  for (const char* size : {"1", "2", "3", "4", "8", "auto"}) {
    CAPTURE(size);
    const Answer answer = ask(gpt2("plan", {"--planner", "data-parallel", "--devices", "4", "--micro-batch", size}));
    REQUIRE(answer.code == 0);
    const bool is_three = std::string(size) == "3";  // three micro-batches of three samples or fewer
    const nlohmann::json plan = answer.object();
    CHECK(plan["stages"].size() == 1);
    CHECK(plan["stages"][0]["devices"].size() == (is_three ? 3 : 4));
    CHECK(holds(plan["diagnostics"].dump(), "it uses 3 of 4 devices") == is_three);
  }
  const Answer few = ask(gpt2("plan", {"--planner", "data-parallel", "--devices", "4", "--batch", "2"}));
  REQUIRE(few.code == 0);
  CHECK(few.object()["stages"][0]["devices"].size() == 2);
  CHECK(holds(few.object()["diagnostics"].dump(), "it uses 2 of 4 devices"));
}

TEST_CASE("policies of replicas take as many devices as pay") {
  for (const char* policy : {"data-parallel", "parameter-server"}) {
    CAPTURE(policy);
    const auto asked = [&](const char* planner, const char* devices, const char* bandwidth = "5e9") {
      return ask(gpt2("plan", {"--policy", policy, "--cluster", "default", "--batch", "8", "--planner", planner,
                               "--devices", devices, "--bandwidth", bandwidth}));
    };
    const nlohmann::json best = asked("auto", "4").object();
    double shortest = best["simulated_step"];
    for (const char* planner : {"equal-split", "data-parallel"})
      for (const char* devices : {"1", "2", "3", "4"}) {
        const Answer equal = asked(planner, devices);
        REQUIRE(equal.code == 0);
        shortest = std::min(shortest, equal.object()["simulated_step"].get<double>());
      }
    CHECK(best["simulated_step"] == shortest);
    CHECK(best["stages"][0]["devices"].size() == 4);
    // Here the gradients take longer to add up than another device saves.
    CHECK(asked("auto", "4", "1e6").object()["stages"][0]["devices"].size() == 1);
  }
}

TEST_CASE("plans of asynchronous schedules are ranked by the step that they take between two drains") {
  for (const char* policy : {"pipedream", "2bw"})
    for (const char* batches : {"1", "16"}) {
      CAPTURE(policy);
      CAPTURE(batches);
      const std::vector<std::string> flags{"--devices", "2",        "--cluster", "default",       "--batch",
                                           "16",        "--policy", policy,      "--drain-every", batches};
      const nlohmann::json best = ask(gpt2("plan", flags)).object();
      for (const char* planner : {"equal-split", "graphpipe", "data-parallel"}) {
        CAPTURE(planner);
        std::vector<std::string> words = flags;
        words.insert(words.end(), {"--planner", planner});
        CHECK(best["simulated_step"] <= ask(gpt2("plan", words)).object()["simulated_step"]);
      }
    }
}

TEST_CASE(
    "a policy that needs chunks or a chain has a plan by auto where the sequential planner has one, and none longer") {
  for (const char* policy : {"interleaved", "looped-bfs"})
    for (const char* devices : {"2", "4"}) {
      CAPTURE(policy);
      CAPTURE(devices);
      const auto plan = [&](const char* planner) {
        return ask(gpt2("plan", {"--devices", devices, "--policy", policy, "--planner", planner}));
      };
      const Answer chosen = plan("auto"), chain = plan("sequential");
      REQUIRE(chain.code == 0);
      REQUIRE(chosen.code == 0);
      CHECK(chosen.object()["simulated_step"] <= chain.object()["simulated_step"]);
    }
}

TEST_CASE("where auto answers with data parallelism, it says what several stages would cost") {
  const nlohmann::json plan = ask(gpt2("plan", {"--devices", "4"})).object();
  REQUIRE(plan["stages"].size() == 1);
  REQUIRE(plan["stages"][0]["devices"].size() > 1);
  const nlohmann::json beside = plan["best_stage_graph"];
  CHECK(beside["stages"] >= 2);
  CHECK(beside["simulated_step"] >= plan["simulated_step"]);
  CHECK(beside["peak_bytes"] > 0);
  for (const char* planner : {"graphpipe", "sequential"}) {
    const nlohmann::json other = ask(gpt2("plan", {"--devices", "4", "--planner", planner})).object();
    CHECK(beside["simulated_step"] <= other["simulated_step"]);
  }
  const nlohmann::json several = ask(gpt2("plan", {"--devices", "4", "--stages", "3"})).object();
  CHECK_FALSE(several.contains("best_stage_graph"));
}

TEST_CASE("a plan names the policy that orders its stages fastest, where that is not its own") {
  const graphpipe::testing::TemporaryFolder folder;
  const std::string file = folder / "plan.json";
  const auto with = [](std::vector<std::string> flags, const std::string& policy) {
    flags.insert(flags.end(), {"--policy", policy});
    return ask(gpt2("plan", flags)).object();
  };
  const std::vector<std::string> chain = {"--devices", "4", "--stages", "4", "--micro-batch", "1", "-o", file};
  const nlohmann::json plan = with(chain, "1f1b"), faster = plan["faster_policy"];
  CHECK(faster["simulated_step"] < 0.99 * plan["simulated_step"].get<double>());
  CHECK(faster["peak_bytes"] > 0);
  for (const scheduler::Policy& policy : scheduler::all_policies()) {
    if (policy.asynchronous || policy.forward_only || policy.tries_others) continue;
    CAPTURE(policy.name);
    const Answer answer = ask(gpt2("plan", {"--plan", file, "--policy", std::string(policy.name)}));
    if (answer.code != 0) continue;  // orders other stages
    const auto step = answer.object()["simulated_step"].get<double>();
    if (policy.name == faster["policy"]) CHECK(step == doctest::Approx(faster["simulated_step"].get<double>()));
    else CHECK(step > 0.999 * faster["simulated_step"].get<double>());
  }
  CHECK_FALSE(with(chain, faster["policy"]).contains("faster_policy"));
  CHECK_FALSE(with(chain, "auto").contains("faster_policy"));
}

TEST_CASE("compare lists the fastest first and marks one winner, in one unit for each column") {
  const Answer answer = ask(gpt2("compare", {"--devices", "4", "--planners", "equal-split,data-parallel,sequential"}));
  REQUIRE(answer.code == 0);
  const nlohmann::json plans = answer.object()["plans"];
  REQUIRE(plans.size() == 3);
  for (size_t i = 0; i < plans.size(); ++i) {
    CHECK(plans[i]["best"] == (i == 0));
    if (i > 0) CHECK(plans[i - 1]["simulated_step"] <= plans[i]["simulated_step"]);
    const bool has_replicas_alone = plans[i]["planner"] == "data-parallel";
    CHECK((plans[i]["message_bytes"] == 0) == has_replicas_alone);
    CHECK(plans[i]["idle_fraction"].get<double>() > 0);
    CHECK(plans[i]["idle_fraction"].get<double>() < 1);
  }
  std::vector<std::string> words = gpt2("compare", {"--devices", "4", "--planners", "equal-split,data-parallel"});
  std::erase(words, "--json");
  const std::string text = ask(words).out;
  CHECK(holds(text, "step, us"));
  CHECK(holds(text, "peak memory, KiB"));
  CHECK(holds(text, "idle"));
  CHECK(holds(text, "messages, KiB"));
  CHECK(std::ranges::count(text, '*') == 1);
}

TEST_CASE("compare says which plans are executed as a chain though their stages have branches") {
  std::vector<std::string> words{"compare",    example_model("clip_like"),
                                 "--loss",     "contrastive:similarity",
                                 "--devices",  "3",
                                 "--cluster",  "default",
                                 "--planners", "equal-split",
                                 "--policies", "kfkb,v-half"};
  const std::string text = ask(words).out;
  words.insert(words.end(), {"--json", "-q"});
  for (const nlohmann::json& row : ask(words).object()["plans"])
    CHECK(row["execute"] == (row["policy"] == "kfkb" ? "graph" : "chain"));
  std::vector<std::string> marked;
  for (const std::string_view line : split(text, "\n"))
    if (line.find("executed as a chain") != std::string_view::npos) marked.emplace_back(line);
  REQUIRE(marked.size() == 1);
  CHECK(holds(marked.front(), "v-half"));
}

TEST_CASE("compare follows --policies for profiles of other projects, or refuses them by name") {
  const std::filesystem::path path = std::filesystem::temp_directory_path() / "graphpipe-compare-policies.txt";
  {
    std::ofstream out(path);
    for (int i = 0; i < 6; ++i)
      out << "node" << i << " -- Layer -- forward_compute_time=" << 1 + i << ".0, backward_compute_time=" << 2 * i
          << ", activation_size=1000.0, parameter_size=4000.0\n";
    for (int i = 1; i < 6; ++i) out << "\tnode" << i - 1 << " -- node" << i << "\n";
  }
  const auto compare = [&](const std::string& policies) {
    return ask({"compare", "--profile", path.string(), "--profile-format", "pipedream", "--devices", "3", "--planners",
                "torchgpipe", "--policies", policies, "--json", "-q"});
  };
  const Answer both = compare("kfkb,gpipe,zb-1p,kfkb");  // each once
  REQUIRE(both.code == 0);
  const nlohmann::json plans = both.object()["plans"];
  REQUIRE(plans.size() == 3);
  std::vector<std::string> policies;
  for (const nlohmann::json& plan : plans) {
    policies.push_back(plan["policy"]);
    CHECK(plan["simulated_step"] == compare(policies.back()).object()["plans"][0]["simulated_step"]);
  }
  std::ranges::sort(policies);
  CHECK(policies == std::vector<std::string>{"gpipe", "kfkb", "zb-1p"});
  for (const char* refused : {"inference", "interleaved", "kfkb,zb-v"}) {
    CAPTURE(refused);
    CHECK(compare(refused).code == 2);
  }
  const auto as_chain = [&](const std::string& form) {
    return ask({"compare", "--profile", path.string(), "--profile-format", "pipedream", "--devices", "3", "--planners",
                "torchgpipe", "--policies", "kfkb", "--execute", "chain", form});
  };
  // What is a chain anyway is not made one.
  CHECK(as_chain("--json").object()["plans"][0]["execute"] == "chain");
  CHECK_FALSE(holds(as_chain("-q").out, "executed as a chain"));
  // A chain of three stages that never drains takes what its longest stage does; one that drains fills and empties too.
  const nlohmann::json stream = compare("pipedream").object()["plans"][0];
  CHECK(stream["steady_step"] < stream["simulated_step"]);
  CHECK_FALSE(plans[0].contains("steady_step"));
  std::filesystem::remove(path);
}

TEST_CASE("the policy auto is never behind a policy that is named, those with stages of their own shape included") {
  const auto step = [](const std::string& policy) {
    const Answer answer = ask(gpt2("plan", {"--devices", "2", "--policy", policy}));
    return answer.code == 0 ? answer.object()["simulated_step"].get<double>() : 1e9;
  };
  const double best = step("auto");
  CHECK(best < 1);
  for (const char* policy : {"kfkb", "gpipe", "1f1b", "zb-1p", "zb-2p", "interleaved", "zb-v", "dualpipe"}) {
    CAPTURE(policy);
    CHECK(best <= step(policy) * (1 + 1e-9));
  }
}

TEST_CASE("simulate says what batches take that follow each other, as plan does") {
  const std::string file = (std::filesystem::temp_directory_path() / "graphpipe-steady.json").string();
  const nlohmann::json planned = ask(gpt2("plan", {"--cluster", "default", "--devices", "2", "--stages", "2", "--batch",
                                                   "8", "--micro-batch", "2", "--policy", "2bw", "-o", file}))
                                     .object();
  const nlohmann::json simulated = ask({"simulate", file, "--json", "-q"}).object();
  CHECK(simulated["steady_step"] == planned["steady_step"]);
  CHECK(simulated["steady_update"] == planned["steady_update"]);
  CHECK(holds(ask({"simulate", file}).out, "where batches follow each other"));
  std::filesystem::remove(file);
}

TEST_CASE("simulate says what devices send each other in a step, however many steps the schedule has") {
  const std::string file = (std::filesystem::temp_directory_path() / "graphpipe-traffic.json").string();
  const auto simulated = [&](std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--cluster", "default", "--batch", "8", "--micro-batch", "2", "-o", file});
    REQUIRE(ask(gpt2("plan", flags)).code == 0);
    return ask({"simulate", file, "--json", "-q"}).object();
  };
  const nlohmann::json once = simulated({"--devices", "2", "--stages", "2", "--policy", "kfkb"});
  CHECK(once["message_bytes"][0].get<int64_t>() > 0);
  CHECK(holds(ask({"simulate", file}).out, "messages of a step: "));
  const std::string again = file + ".2bw";
  REQUIRE(ask(gpt2("plan", {"--cluster", "default", "--devices", "2", "--batch", "8", "--plan", file, "--policy", "2bw",
                            "--drain-every", "4", "-o", again}))
              .code == 0);
  const nlohmann::json many = ask({"simulate", again, "--json", "-q"}).object();
  CHECK(many["message_bytes"] == once["message_bytes"]);
  std::filesystem::remove(again);
  const nlohmann::json replicas = simulated({"--devices", "2", "--planner", "data-parallel"});
  CHECK(replicas["message_bytes"] == nlohmann::json({0, 0}));
  CHECK(replicas["summed_bytes"][0].get<int64_t>() > 0);
  CHECK(holds(ask({"simulate", file}).out, "weight gradients summed with other devices in a step: "));
  std::filesystem::remove(file);
}

TEST_CASE("a plan's digest is that of its file, and stands nowhere without one") {
  const std::string file = (std::filesystem::temp_directory_path() / "graphpipe-digest.json").string();
  const std::vector<std::string> flags = {"--cluster", "default", "--devices", "2", "--planner", "sequential"};
  std::vector<std::string> written = flags;
  written.insert(written.end(), {"-o", file});
  const nlohmann::json planned = ask(gpt2("plan", written)).object();
  CHECK(planned["plan_digest"] == ask({"simulate", file, "--json", "-q"}).object()["plan_digest"]);
  CHECK_FALSE(ask(gpt2("plan", flags)).object().contains("plan_digest"));
  std::filesystem::remove(file);
}

TEST_CASE("asynchronous plans drain once in so many steps as the user or the micro-batches say, others in each") {
  const auto plan = [](const std::string& policy, std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--cluster", "default", "--devices", "2", "--planner", "sequential", "--stages", "2",
                               "--batch", "8", "--micro-batch", "2", "--policy", policy});
    return ask(gpt2("plan", flags));
  };
  const nlohmann::json usual = plan("2bw", {}).object(), one = plan("2bw", {"--drain-every", "1"}).object();
  CHECK(usual["drain_every"] == 16);
  CHECK(usual["steady_step"].get<double>() < usual["simulated_step"].get<double>());
  CHECK(usual["simulated_step"].get<double>() < one["simulated_step"].get<double>());
  CHECK(usual["steady_step"].get<double>() == doctest::Approx(one["steady_step"].get<double>()));
  CHECK(plan("pipedream", {"--drain-every", "3"}).object()["drain_every"] == 3);
  CHECK_FALSE(plan("kfkb", {}).object().contains("drain_every"));
  const Answer synchronous = plan("kfkb", {"--drain-every", "3"});
  CHECK(synchronous.code == 2);
  CHECK(holds(synchronous.err, "the policy kfkb does not take it"));
  const Answer uneven = plan("2bw", {"--drain-every", "2", "--update", "6"});
  CHECK(uneven.code == 2);
  CHECK(holds(uneven.err, "updates of 6 samples do not divide the batch of 8"));
  const Answer longer = plan("2bw", {"--update", "16"});
  CHECK(longer.code == 2);
  CHECK(holds(longer.err, "updates of 16 samples are longer than the batch of 8"));
  CHECK(plan("2bw", {"--update", "6"}).code == 2);
  CHECK(plan("2bw", {"--update", "4"}).object()["drain_every"] == 16);
  CHECK(plan("2bw", {"--drain-every", "1", "--update", "6"}).object()["drain_every"] == 1);
}

TEST_CASE("a plan file says what no flag says, and its schedule may be made anew") {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "graphpipe-given-plan";
  std::filesystem::create_directories(folder);
  const std::string file = (folder / "plan.json").string(), again = (folder / "again.json").string();
  const auto read = [](const std::string& path) {
    std::ifstream in(path);
    return nlohmann::ordered_json::parse(in);  // the schema comes first
  };
  const auto write = [&](const nlohmann::ordered_json& plan) { std::ofstream(file) << plan.dump(); };
  for (const std::vector<std::string>& flags : std::vector<std::vector<std::string>>{
           {"--policy", "gpipe", "--optimizer", "adam", "--seed", "7", "--threads", "3"},
           {"--policy", "2bw", "--drain-every", "3"}}) {
    CAPTURE(flags[1]);
    std::vector<std::string> words{"--cluster", "default",    "--devices", "2",  "--stages",      "2",
                                   "--planner", "sequential", "--batch",   "12", "--micro-batch", "2",
                                   "-o",        file};
    words.insert(words.end(), flags.begin(), flags.end());
    const nlohmann::json first = ask(gpt2("plan", words)).object();
    const nlohmann::ordered_json plan = read(file);
    nlohmann::ordered_json cut = plan;
    cut.erase("schedule");
    write(cut);
    const Answer anew = ask(gpt2("plan", {"--plan", file, "-o", again}));
    CAPTURE(anew.err);
    CHECK(anew.object()["simulated_step"] == first["simulated_step"]);
    nlohmann::ordered_json made = read(again);
    CHECK(made["planner"] == "manual");
    made["planner"] = plan["planner"];
    CHECK(made == plan);
    const Answer simulated = ask({"simulate", file, "--json", "-q"});
    CHECK(simulated.object()["simulated_step"] == first["simulated_step"]);
    CHECK(ask(gpt2("plan", {"--plan", file, "--seed", "8", "-o", again})).code == 0);
    CHECK(read(again)["seed"] == "8");
    write(plan);
    const Answer other = ask(gpt2("plan", {"--plan", file, "--batch", "24"}));
    CHECK(other.code == 2);
    CHECK(holds(other.err, "a schedule of 12 samples"));
    cut["policy"] = "nonsense";
    write(cut);
    for (const std::vector<std::string>& reader :
         {gpt2("plan", {"--plan", file}), std::vector<std::string>{"simulate", file}}) {
      const Answer refused = ask(reader);
      CHECK(refused.code == 3);
      CHECK(holds(refused.err, file));
      CHECK(holds(refused.err, "nonsense"));
    }
  }
  std::filesystem::remove_all(folder);
}

TEST_CASE("a planner that decides the number of stages says which, and compare marks what trains asynchronously") {
  const Answer refused =
      ask(gpt2("plan", {"--planner", "dapple", "--cluster", "default", "--devices", "4", "--stages", "3"}));
  CHECK(refused.code == 4);
  CHECK(holds(refused.err, "the planner dapple decides the number of stages itself, here "));
  const Answer compared =
      ask({"compare", example_model("gpt2_like"), "--loss", "cross_entropy:logits,labels", "--cluster", "default",
           "--devices", "2", "--stages", "2", "--planners", "sequential", "--policies", "kfkb,2bw", "-q"});
  std::istringstream lines(compared.out);
  std::map<std::string, bool> marked;
  for (std::string line; std::getline(lines, line);)
    for (const char* policy : {"kfkb", "2bw"})
      if (holds(line, policy)) marked[policy] = holds(line, "asynchronous");
  CHECK(marked == std::map<std::string, bool>{{"2bw", true}, {"kfkb", false}});
}

TEST_CASE("what a plan was made with need not be said again") {
  const auto folder = std::filesystem::temp_directory_path() / text("graphpipe_said_", getpid());
  std::filesystem::create_directories(folder);
  const std::string file = (folder / "plan.json").string(), again = (folder / "again.json").string();
  const auto spec_of = [](const std::string& path) {
    std::ifstream in(path);
    nlohmann::json plan = nlohmann::json::parse(in);
    plan.erase("planner");
    plan.erase("search");
    return plan;
  };
  REQUIRE(ask(gpt2("plan", {"--cluster", "default", "--devices", "2", "--precision", "bf16", "--optimizer", "adamw",
                            "--freeze", "*.bias", "-o", file}))
              .code == 0);
  const Answer anew = ask({"plan", example_model("gpt2_like"), "--plan", file, "--json", "-q", "-o", again});
  CAPTURE(anew.err);
  REQUIRE(anew.code == 0);
  CHECK(spec_of(again) == spec_of(file));
  // What is said must still be what the plan was made with.
  const Answer other = ask({"plan", example_model("gpt2_like"), "--plan", file, "--precision", "fp16", "-q"});
  CHECK(other.code == 3);
  CHECK(holds(other.err, "the plan was made with 'bf16'"));
  std::filesystem::remove_all(folder);
}

TEST_CASE("memory and bandwidth are those of the flags, in new plans and in plans of a file") {
  const std::string plan =
      (std::filesystem::temp_directory_path() / graphpipe::text("graphpipe-flags-", getpid(), ".plan.json")).string();
  const auto planned = [&](std::vector<std::string> flags, const std::string& cluster = "default") {
    flags.insert(flags.end(), {"--devices", "4", "--cluster", cluster});
    const Answer answer = ask(gpt2("plan", flags));
    CAPTURE(answer.err);
    REQUIRE(answer.code == 0);
    return answer.object();
  };
  const nlohmann::json usual = planned({"--stages", "4", "--planner", "sequential", "-o", plan});
  const nlohmann::json slow = planned({"--plan", plan, "--bandwidth", "1e3", "--memory", "1e9"});
  CHECK(holds(slow["machine"]["description"], "with 954 MiB each, the outermost links with 1"));
  CHECK(slow["simulated_step"] > usual["simulated_step"]);
  CHECK(planned({"--plan", plan, "--memory", "1e9"})["simulated_step"] == usual["simulated_step"]);
  // Four devices of summit are one machine, whose outermost links join its two sockets.
  const nlohmann::json near = planned({"--plan", plan}, "summit"),
                       far = planned({"--plan", plan, "--bandwidth", "1e3"}, "summit");
  CHECK(far["simulated_step"] > near["simulated_step"]);
  CHECK(ask(gpt2("plan", {"--devices", "4", "--cluster", "default", "--memory", "1000"})).code == 4);
  for (const std::vector<std::string>& wrong :
       std::vector<std::vector<std::string>>{{"--memory", "0.5"}, {"--memory", "1e16"}})
    CHECK(ask(gpt2("plan", wrong)).code == 2);
  std::filesystem::remove(plan);
}

TEST_CASE("bounds in a comparison are those of batches that follow each other where the policy lets them") {
  const Answer answer = ask(gpt2("compare", {"--devices", "4", "--cluster", "default", "--batch", "2", "--planners",
                                             "auto", "--policies", "pipedream,2bw,kfkb"}));
  REQUIRE(answer.code == 0);
  const nlohmann::json compared = answer.object();
  std::map<std::string, double> bounds;
  for (const nlohmann::json& row : compared["plans"]) {
    bounds[row["policy"]] = row["bound"];
    CHECK(row["bound"] <= row["simulated_step"]);
  }
  CHECK(bounds["2bw"] == bounds["pipedream"]);
  CHECK(bounds["2bw"] < bounds["kfkb"]);  // two samples on four devices: the path through the model is longer
}

TEST_CASE("weights that no device can hold are refused without a search, by plan and by compare") {
  const std::string cluster = GRAPHPIPE_BINARY_DIR "/driver_tiny_cluster.json";
  std::ofstream(cluster) << R"({"schema": "graphpipe.cluster/1", "devices": [{"name": "d", "memory_bytes": 20000,)"
                         << R"( "flops_per_second": 5e10, "memory_bytes_per_second": 1e10,)"
                         << R"( "launch_overhead_seconds": 1e-6}]})";
  const Answer refused = ask(gpt2("plan", {"--cluster", cluster}));
  CHECK(refused.code == 4);
  const std::string why =
      "no plan fits the devices: all weights take 91264 bytes with gradients and the optimizer's state";
  CHECK(holds(refused.out, why));
  const Answer none = ask(gpt2("compare", {"--cluster", cluster, "--planners", "auto,piper"}));
  CHECK(none.code == 4);
  const nlohmann::json compared = none.object();
  REQUIRE(compared["plans"].size() == 2);
  for (const nlohmann::json& row : compared["plans"]) CHECK(holds(row["error"], why));
  // Without any plan the report says why, once.
  CHECK(compared["complete"] == false);
  REQUIRE(compared["diagnostics"].size() == 1);
  CHECK(compared["diagnostics"][0]["code"] == "no-feasible-plan");
  CHECK(holds(compared["diagnostics"][0]["message"], why));
}

TEST_CASE("a comparison is complete where some contender has a plan") {
  const Answer some = ask(gpt2("compare", {"--cluster", "default", "--devices", "2", "--stages", "2", "--planners",
                                           "equal-split", "--policies", "kfkb,zb-v"}));
  CHECK(some.code == 0);
  CHECK(some.object()["complete"] == true);
  CHECK(some.object()["diagnostics"].empty());
  CHECK(some.object()["plans"][1].contains("error"));
}

TEST_CASE("a time limit that is over leaves plans that take no search, or says so, in every search of a command") {
  const Answer ended = ask(gpt2("plan", {"--devices", "4", "--time-limit", "1e-9"}));
  CHECK(ended.code == 7);
  CHECK(ended.object()["complete"] == false);
}

TEST_CASE("what plan and simulate say of many devices is as short as of few") {
  const std::string plan = (std::filesystem::temp_directory_path() / "graphpipe-many-devices.json").string();
  const Answer planned =
      ask({"plan", example_model("dlrm"), "--loss", "bce:logit,click", "--planner", "data-parallel", "--devices", "256",
           "--batch", "1024", "--micro-batch", "4", "--cluster", "default", "-o", plan, "-q"});
  REQUIRE(planned.code == 0);
  const Answer simulated = ask({"simulate", plan, "-q"});
  REQUIRE(simulated.code == 0);
  std::filesystem::remove(plan);
  CHECK(holds(planned.out, "devices 0 to 255"));
  CHECK(std::ranges::count(simulated.out, '\n') < 20);
  for (const std::string& said : {planned.out, simulated.out}) {
    std::istringstream lines(said);
    for (std::string line; std::getline(lines, line);) CHECK_MESSAGE(line.size() < 200, line);
  }
}

TEST_CASE("the report says which stages recompute, and of plans that keep everything nothing") {
  const auto report = [](const char* recompute) {
    const Answer answer =
        ask({"plan", example_model("gpt2_like"), "--loss", "cross_entropy:logits,labels", "--cluster", "default",
             "--devices", "2", "--planner", "sequential", "--stages", "2", "--recompute", recompute, "-q"});
    CHECK(answer.code == 0);
    return answer.out;
  };
  CHECK(holds(report("always"), "activations are computed again in the backwards of s0, s1\n"));
  CHECK_FALSE(holds(report("never"), "computed again"));
}
