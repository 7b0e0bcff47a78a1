// graphpipe schedule and check as a user types them.

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "scheduler/policies/policies.h"
#include "tests/driver/ask.h"
#include "tests/support/test_data.h"
#include "wire/exit_codes.h"

using namespace graphpipe;
using namespace graphpipe::tests;
using nlohmann::json;

namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("graphpipe-schedule-" + std::to_string(getpid()))) {
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name) << text;
    return path(name);
  }
  std::string path(const std::string& name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

json recorded_dag(const std::string& name) { return json::parse(read_data("schedules/derived/dag/" + name + ".json")); }

json standalone(const Folder& folder, const json& dag, const std::string& policy) {
  const Answer answer =
      ask({"schedule", "--policy", policy, "--dag", folder.write("dag.json", dag.dump()), "--format", "json"});
  CAPTURE(answer.err);
  REQUIRE(answer.code == 0);
  return answer.object();
}

}  // namespace

TEST_CASE("--dag reproduces every field of the recorded stage graphs") {
  const Folder folder;
  for (const char* name : {"chain4", "diamond", "diamond_mixed_b", "four_branches_tail", "graphpipe_fig5_like_chain",
                           "n_shape_non_sp", "skewed_diamond", "two_towers_join", "two_towers_mixed_b"}) {
    CAPTURE(name);
    const json dag = recorded_dag(name);
    const json answer = standalone(folder, dag, "kfkb");
    CHECK(answer["in_flight_samples"] == dag["inflight_samples"]);
    CHECK(answer["lists"] == dag["lists"]);
    CHECK(answer["makespan"].get<double>() == dag["makespan"].get<double>());
    CHECK(answer["lower_bound"].get<double>() == dag["lower_bound"].get<double>());
    if (!dag.contains("zb_h1_on_dag")) continue;
    const json split = standalone(folder, dag, "zb-1p");
    const json& wanted = dag["zb_h1_on_dag"];
    CHECK(split["lists"] == wanted["lists"]);
    CHECK(split["makespan"].get<double>() == wanted["makespan"].get<double>());
    CHECK(split["lower_bound"].get<double>() == wanted["lower_bound"].get<double>());
    CHECK(split["peak_F_to_W"] == wanted["peak_F_to_W"]);
  }
}

TEST_CASE("--dag reproduces the latency cases, or is faster, and every field of the zero-bubble cases") {
  const Folder folder;
  for (const json& dag : recorded_dag("inflight_rule_cases")) {
    CAPTURE(dag.dump());
    const json exact = standalone(folder, dag, "kfkb"), depth = standalone(folder, dag, "1f1b");
    // Raised where the step gets 1 % shorter or more (docs/schedules.md, section 4.3).
    const bool is_raised = exact["in_flight_samples"] != dag["in_flight"];
    const double by_rule = dag["makespan"].get<double>(), makespan = exact["makespan"].get<double>();
    CHECK((is_raised ? makespan < 0.99 * by_rule : makespan == by_rule));
    CHECK(exact["lower_bound"].get<double>() == dag["lower_bound"].get<double>());
    CHECK(depth["in_flight_samples"] == dag["depth_rule"]);
    CHECK(depth["makespan"].get<double>() == dag["makespan_depth_rule"].get<double>());
  }
  for (const json& dag : recorded_dag("zb_on_dag_cases")) {
    CAPTURE(dag.dump());
    const json split = standalone(folder, dag, "zb-1p"), whole = standalone(folder, dag, "1f1b");
    CHECK(split["warm_up"] == dag["warm_up"]);
    CHECK(split["w_lag"] == dag["w_lag"]);
    CHECK(split["makespan"].get<double>() == dag["makespan_F1I1W1"].get<double>());
    CHECK(split["lower_bound"].get<double>() == dag["lower_bound"].get<double>());
    CHECK(split["peak_F_to_W"] == dag["peak_F_to_W"]);
    CHECK(whole["makespan"].get<double>() == dag["makespan_unsplit_F1B2"].get<double>());
  }
}

TEST_CASE("every policy's schedule comes in every form, and check finds it right with the same makespan") {
  const Folder folder;
  for (const scheduler::Policy& policy : scheduler::all_policies()) {
    const std::string name(policy.name);
    CAPTURE(name);
    const auto form = [&](const std::string& format) {
      return ask({"schedule", "--policy", name, "--ranks", "4", "--micro-batches", "8", "--format", format, "--latency",
                  "0.25", "-o", folder.path("out." + format)});
    };
    for (const std::string format : {"text", "csv", "json", "svg", "trace", "ir", "proto", "pb"}) {
      CAPTURE(format);
      const Answer answer = form(format);
      CAPTURE(answer.err);
      REQUIRE(answer.code == 0);
    }
    json made;
    std::ifstream(folder.path("out.json")) >> made;
    for (const std::string format : {"csv", "ir", "proto", "pb", "json"}) {
      CAPTURE(format);
      const Answer answer = ask({"check", folder.path("out." + format), "--latency", "0.25", "--json"});
      CAPTURE(answer.err);
      REQUIRE(answer.code == 0);
      CHECK(answer.object()["valid"] == true);
      // The CSV knows nothing of updates, which take their time in a parameter server.
      if (format != "csv" || !policy.asynchronous) CHECK(answer.object()["makespan"] == made["makespan"]);
      CHECK(answer.object()["peak_F_to_W"] == made["peak_F_to_W"]);
    }
    if (form("csv-comms").code == 0) CHECK(ask({"check", folder.path("out.csv-comms")}).code == 0);
  }
}

TEST_CASE("a wrong schedule ends with 1 and the first offending action") {
  const Folder folder;
  const auto check = [&](const std::string& csv) { return ask({"check", folder.write("wrong.csv", csv), "--json"}); };
  const Answer swapped = check("0F0,,0B0\n1F0,,1W0,1I0\n");
  CHECK(swapped.code == wire::kExitCheckFailed);
  CHECK(swapped.err.find("rank 1, position 2: 1W0 comes before its input gradient") != std::string::npos);
  CHECK(swapped.object()["valid"] == false);
  CHECK(swapped.object()["rank"] == 1);
  CHECK(swapped.object()["position"] == 2);
  CHECK(swapped.object()["action"] == "1W0");
  const Answer pair = check("0F0,0F1,(0F1;0B0)OVERLAP_F_B,0B1\n1F0,1B0,1F1,1B1\n");
  CHECK(pair.code == wire::kExitCheckFailed);
  CHECK(pair.object()["action"] == "(0F1;0B0)OVERLAP_F_B");
  const Answer same_samples = check("0F0,0F1,0B0,0B1\n(1F0;1B0)OVERLAP_F_B,1F1,1B1\n");
  CHECK(same_samples.code == wire::kExitCheckFailed);
  CHECK(same_samples.object()["action"] == "(1F0;1B0)OVERLAP_F_B");
  CHECK(same_samples.err.find("overlaps a backward of the same samples") != std::string::npos);
  const Answer missing = check("0F0,0F1,0B0,0B1\n1F0,1B0\n");
  CHECK(missing.code == wire::kExitCheckFailed);
  CHECK(missing.object()["rank"] == 1);
  CHECK(missing.object()["position"] == 1);
  CHECK(missing.object()["action"] == "1F1");
  CHECK(missing.object()["missing"] == true);
  CHECK(missing.err.find("rank 1, before position 1: 1F1 is missing: stage 1 has no forward of sample 1") !=
        std::string::npos);
  CHECK(check("0F0,2Q0\n").code == wire::kExitInputRefused);
  CHECK(ask({"check", folder.path("absent.csv")}).code == wire::kExitInputRefused);
}

TEST_CASE("check proves what is claimed of weight versions, or names the action that breaks it") {
  const Folder folder;
  const auto make = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"schedule", "--ranks", "4", "--micro-batches", "12", "--format", "ir", "-o",
                                 folder.path("claims.txt"), "--policy"});
    REQUIRE(ask(words).code == 0);
  };
  const auto check = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"check", folder.path("claims.txt")});
    return ask(words);
  };
  make({"pipedream", "--vertical-sync"});
  CHECK(check({"--claim", "vertical-sync", "--max-versions", "4"}).code == 0);
  CHECK(check({"--claim", "synchronous"}).code == wire::kExitCheckFailed);
  make({"pipedream"});
  CHECK(check({"--max-versions", "4"}).code == 0);
  CHECK(check({"--max-versions", "3"}).code == wire::kExitCheckFailed);
  const Answer broken = check({"--claim", "vertical-sync"});
  CHECK(broken.code == wire::kExitCheckFailed);
  CHECK(broken.err.find("rank 3, position ") != std::string::npos);
  CHECK(broken.err.find("3F[1,2)") != std::string::npos);
  make({"2bw"});
  CHECK(check({"--claim", "2bw,vertical-sync", "--max-versions", "2"}).code == 0);
  CHECK(check({"--claim", "newest"}).code == wire::kExitUsage);
}

TEST_CASE("a device without work has an empty list, and a latency is a number") {
  const Folder folder;
  const std::string dag =
      folder.write("idle.json", R"({"predecessors": [[], [0]], "micro_batches": 1, "replicas": [1, 2]})");
  const Answer idle = ask({"schedule", "--policy", "kfkb", "--dag", dag, "--format", "json"});
  REQUIRE(idle.code == 0);
  const nlohmann::json programs = idle.object()["programs"];
  REQUIRE(programs.size() == 3);
  CHECK(programs[2].empty());
  for (const char* latency : {"nan", "-1", "inf", "1e7"})
    CHECK(ask({"schedule", "--policy", "1f1b", "--ranks", "2", "--micro-batches", "2", "--latency", latency}).code ==
          wire::kExitUsage);
}

TEST_CASE("a standalone schedule of too many actions is refused, however its sizes multiply") {
  const Folder folder;
  const std::string dag =
      folder.write("huge.json", R"({"predecessors": [[], [0], [1], [2]], "micro_batch_size": [2147483648, 1, 1, 1]})");
  for (const char* count : {"1073741824", "1000"})
    CHECK(ask({"schedule", "--policy", "kfkb", "--dag", dag, "--micro-batches", count}).code == 3);
}

TEST_CASE("claims about a file without updates are refused: nothing in it could break them") {
  const Folder folder;
  const std::string csv = folder.write("claims.csv", "0F0,0B0\n1F0,1B0\n");
  const std::string lists = folder.write("claims.json", R"--({"programs": [["0F[0,1)", "0B[0,1)"]]})--");
  const std::string flushed = folder.path("flushed.txt");
  REQUIRE(ask({"schedule", "--policy", "1f1b", "--ranks", "2", "--micro-batches", "4", "--format", "ir", "-o", flushed})
              .code == 0);
  for (const std::string& file : {csv, lists, flushed}) {
    CAPTURE(file);
    CHECK(ask({"check", file}).code == 0);
    for (const char* claim : {"synchronous", "vertical-sync", "2bw"}) {
      const Answer answer = ask({"check", file, "--claim", claim});
      CHECK(answer.code == wire::kExitUsage);
      CHECK(answer.err.find("--claim") != std::string::npos);
      CHECK(answer.err.find("--format ir") != std::string::npos);
    }
    const Answer answer = ask({"check", file, "--max-versions", "2"});
    CHECK(answer.code == wire::kExitUsage);
    CHECK(answer.err.find("--max-versions") != std::string::npos);
  }
}

TEST_CASE("a schedule without any action is refused in every form") {
  const Folder folder;
  for (const char* text :
       {"", "\n", R"({"programs": []})", R"({"programs": [[]]})", "schedule a\n", "schedule a\ndevice 0:\n"}) {
    CAPTURE(text);
    const Answer answer = ask({"check", folder.write("empty", text)});
    CHECK(answer.code == wire::kExitInputRefused);
    CHECK(answer.err.find("the schedule is empty") != std::string::npos);
  }
}

TEST_CASE("lists without a number of slots are right, whichever slots their actions name") {
  const Folder folder;
  for (const char* text :
       {R"--({"programs": [["0F[0,1)s0", "0B[0,1)s0"]]})--", R"--({"programs": [["0F[0,1)", "0B[0,1)"]]})--",
        R"--({"programs": [["0F[0,1)s7", "0SEND_F[0,1)e0p0s7", "0RECV_B[0,1)e0p0s7", "0B[0,1)s7"],
                           ["1RECV_F[0,1)e0p0s0", "1F[0,1)s0", "1B[0,1)s0", "1SEND_B[0,1)e0p0s0"]]})--"}) {
    CAPTURE(text);
    const Answer answer = ask({"check", folder.write("lists.json", text)});
    CAPTURE(answer.err);
    CHECK(answer.code == 0);
  }
}

TEST_CASE("a CSV says where it lacks the edges or the sizes of a stage graph") {
  const Folder folder;
  for (const char* name : {"chain4", "diamond", "diamond_mixed_b"}) {
    CAPTURE(name);
    const std::string dag = folder.write("dag.json", recorded_dag(name).dump());
    const Answer answer = ask({"schedule", "--dag", dag, "--format", "csv"});
    CHECK(answer.code == 0);
    CHECK(holds(answer.err, "reads it as a chain") == (std::string_view(name) != "chain4"));
  }
  const std::string apart = folder.write("dag.json", R"({"predecessors": [[], [], [1]], "batch": 4})");
  CHECK(holds(ask({"schedule", "--dag", apart, "--format", "csv"}).err, "reads it as a chain"));
}

TEST_CASE("--dag takes stages with replicas that take turns") {
  const Folder folder;
  const std::string dag =
      folder.write("dag.json", R"({"predecessors": [[], [0]], "replicas": [2, 1], "micro_batches": 8})");
  const Answer answer = ask({"schedule", "--policy", "pipedream-rr", "--dag", dag, "--format", "json"});
  CAPTURE(answer.err);
  REQUIRE(answer.code == 0);
  CHECK(answer.object()["ranks"] == 3);
  CHECK(ask({"schedule", "--policy", "kfkb", "--dag", dag, "--format", "csv"}).code == 0);
  // Micro-batches of both replicas go to the one of the next stage.
  CHECK(ask({"schedule", "--policy", "kfkb", "--dag", dag, "--format", "csv-comms"}).code == wire::kExitUsage);
  CHECK(ask({"schedule", "--policy", "zb-v", "--dag", dag}).code == wire::kExitUsage);
  CHECK(ask({"schedule", "--policy", "kfkb", "--dag", dag, "--ranks", "2"}).code == wire::kExitUsage);
}

TEST_CASE("a flag of the order is taken by the policies that know it, and refused by the others with their names") {
  struct Case {
    std::vector<std::string> flag, takers;
  };
  const Case cases[] = {{{"--group", "4"}, {"interleaved", "interleaved-zb"}},
                        {{"--backward", "lifo"}, {"gpipe"}},
                        {{"--backward", "fifo"}, {"gpipe"}},
                        {{"--vertical-sync"}, {"pipedream", "pipedream-rr"}},
                        {{"--update", "8"}, {"2bw"}}};
  for (const Case& each : cases) {
    CAPTURE(each.flag.front());
    const auto with = [&](std::vector<std::string> words, const std::string& policy) {
      words.insert(words.end(), {"--policy", policy});
      words.insert(words.end(), each.flag.begin(), each.flag.end());
      return ask(words);
    };
    const std::vector<std::string> standalone = {"schedule", "--ranks", "4", "--micro-batches", "8"},
                                   plan = {"plan", "no_such_model.onnx"},
                                   compile = {"compile", "no_such_model.onnx", "-o", "no_such_folder"};
    for (const std::string& policy : each.takers) {
      CAPTURE(policy);
      CHECK(with(standalone, policy).code == 0);
      // The flag is taken, so the complaint is about the model.
      CHECK(with(plan, policy).code == wire::kExitInputRefused);
      CHECK(with(compile, policy).code == wire::kExitInputRefused);
    }
    for (const char* policy : {"kfkb", "1f1b", "zb-1p", "looped-bfs", "data-parallel", "inference", "none"}) {
      CAPTURE(policy);
      for (const Answer& answer : {with(standalone, policy), with(plan, policy), with(compile, policy)}) {
        CHECK(answer.code == wire::kExitUsage);
        CHECK(answer.err.find(each.flag.front()) != std::string::npos);
        CHECK(answer.err.find(each.takers.front()) != std::string::npos);
      }
    }
  }
}

TEST_CASE("flags of a standalone schedule that make no sense are refused with the flag's name") {
  const Folder folder;
  const auto refused = [](std::vector<std::string> words, int code, const std::string& part) {
    const Answer answer = ask(std::move(words));
    CAPTURE(answer.err);
    CHECK(answer.code == code);
    CHECK(answer.err.find(part) != std::string::npos);
  };
  refused({"schedule", "--micro-batches", "4"}, wire::kExitUsage, "--ranks");
  refused({"schedule", "--ranks", "4"}, wire::kExitUsage, "--micro-batches");
  refused({"schedule", "--ranks", "2", "--micro-batches", "4", "--costs", "1,1"}, wire::kExitUsage, "--costs");
  refused({"schedule", "--ranks", "2", "--micro-batches", "4", "--costs", "1,,1"}, wire::kExitUsage, "--costs");
  refused({"schedule", "--ranks", "2", "--micro-batches", "4", "--costs", "1,-1,1"}, wire::kExitUsage, "--costs");
  refused({"schedule", "--policy", "zb-v", "--ranks", "2", "--chunks", "3", "--micro-batches", "4"}, wire::kExitUsage,
          "--chunks 2");
  refused({"schedule", "--ranks", "4096", "--micro-batches", "1000000000"}, wire::kExitInputRefused, "micro-batches");
  refused({"schedule", "--policy", "warp", "--ranks", "2", "--micro-batches", "4"}, wire::kExitUsage, "warp");
  const std::string dag = folder.write("dag.json", R"({"predecessors": [[], [0], [0]]})");
  refused({"schedule", "--dag", dag}, wire::kExitUsage, "--micro-batches");
  refused({"schedule", "--dag", dag, "--micro-batches", "4", "--format", "csv-comms"}, wire::kExitUsage, "chains");
  refused({"schedule", "--dag", dag, "--micro-batches", "4", "--ranks", "3", "--chunks", "2"}, wire::kExitUsage,
          "--chunks");
  const std::string large = folder.write("large.json", R"({"predecessors": [[], [0]], "micro_batch_size": 1000000})");
  refused({"schedule", "--dag", large, "--micro-batches", "3000", "--format", "pb"}, wire::kExitUsage, "2^31 - 1");
}

TEST_CASE("a replica without a micro-batch makes every update of its stage") {
  const Folder folder;
  const std::string dag =
      folder.write("dag.json", R"({"predecessors": [[], [0]], "replicas": [1, 4], "micro_batches": 2})");
  const Answer in_turn = ask({"schedule", "--policy", "pipedream-rr", "--dag", dag, "--format", "ir"});
  CAPTURE(in_turn.err);
  CHECK(in_turn.code == 0);
  CHECK(ask({"schedule", "--policy", "parameter-server", "--ranks", "4", "--micro-batches", "3"}).code == 0);
}

TEST_CASE("delayed starts that were computed for other costs do not delay a schedule") {
  const Folder folder;
  const std::string dag =
      folder.write("dag.json", R"({"predecessors": [[], [0], [1], [], [2, 3]], "micro_batches": 12})");
  const std::string file = folder.path("zb.ir");
  REQUIRE(ask({"schedule", "--policy", "zb-2p", "--dag", dag, "--format", "ir", "-o", file, "-q"}).code == 0);
  const Answer own = ask({"check", file, "--json"}), other = ask({"check", file, "--costs", "0.1,0.1,0.1", "--json"});
  CHECK(other.object()["makespan"].get<double>() == doctest::Approx(own.object()["makespan"].get<double>() / 10));
  CHECK(holds(other.err, "those of other costs"));
  CHECK_FALSE(holds(own.err, "those of other costs"));
}

TEST_CASE("costs that the clock would round away are refused") {
  const auto with_costs = [](const std::string& costs) {
    return ask({"schedule", "--policy", "1f1b", "--ranks", "2", "--micro-batches", "4", "--costs", costs});
  };
  CHECK(holds(with_costs("1.4e-6,1.4e-6,1.4e-6").err, "multiply all"));
  CHECK(with_costs("1.4e-6,1,1").code == 2);
  CHECK(with_costs("0,0,0").code == 2);
  CHECK(with_costs("0.5,0,1").code == 0);
  const Folder folder;
  for (const std::string cost : {R"("forward": 1e-7, "backward": 2e-7)",
                                 R"("cost_per_sample": {"forward": 1e-4, "backward": 2e-4})", R"("latency": 1e-7)"}) {
    CAPTURE(cost);
    const std::string dag =
        folder.write("dag.json", R"({"predecessors": [[], [0]], "micro_batches": 4, )" + cost + "}");
    const Answer answer = ask({"schedule", "--dag", dag});
    CHECK(answer.code == 3);
    CHECK(holds(answer.err, "multiply all"));
  }
}
