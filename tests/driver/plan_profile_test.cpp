// graphpipe plan --profile-format as a user types it.

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "driver/cli/commands.h"
#include "tests/support/test_data.h"

using nlohmann::json;

namespace {

namespace fs = std::filesystem;

class ProfileFile {
 public:
  ProfileFile() : path_(fs::temp_directory_path() / ("graphpipe-profile-" + std::to_string(getpid()) + ".txt")) {
    std::ofstream out(path_);
    for (int i = 0; i < 6; ++i)
      out << "node" << i << " -- Layer -- forward_compute_time=" << 1 + i << ".0, backward_compute_time=" << 2 * i
          << ", activation_size=1000.0, parameter_size=4000.0\n";
    for (int i = 1; i < 6; ++i) out << "\tnode" << i - 1 << " -- node" << i << "\n";
  }
  struct Text {
    std::string text;
  };
  explicit ProfileFile(const Text& content)
      : path_(fs::temp_directory_path() / ("graphpipe-given-profile-" + std::to_string(getpid()) + ".txt")) {
    std::ofstream(path_) << content.text;
  }
  /// A file that is there, and stays.
  explicit ProfileFile(fs::path path) : path_(std::move(path)), is_own_(false) {}
  ~ProfileFile() {
    if (is_own_) fs::remove(path_);
  }
  ProfileFile(const ProfileFile&) = delete;
  ProfileFile& operator=(const ProfileFile&) = delete;

  std::string path() const { return path_.string(); }

  struct Answer {
    int code = 0;
    json object;
    std::string message() const { return object["diagnostics"].empty() ? "" : object["diagnostics"][0].dump(); }
  };
  Answer plan(const std::vector<std::string>& flags) const {
    std::vector<std::string> words{"plan", "--profile", path_.string()};
    words.insert(words.end(), flags.begin(), flags.end());
    return ask(words);
  }
  static Answer ask(std::vector<std::string> words) {
    words.insert(words.begin(), "graphpipe");
    words.emplace_back("--json");
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    std::ostringstream out;
    auto* old = std::cout.rdbuf(out.rdbuf());
    Answer answer;
    answer.code = graphpipe::driver::run_command_line(static_cast<int>(arguments.size()), arguments.data());
    std::cout.rdbuf(old);
    answer.object = json::parse(out.str());
    return answer;
  }

 private:
  fs::path path_;
  bool is_own_ = true;
};

constexpr const char* kPlanners[] = {"graphpipe", "sequential",     "pipedream",    "2bw",  "equal-split",
                                     "piper",     "dapple",         "torchgpipe",   "alpa", "max-throughput",
                                     "auto",      "model-parallel", "data-parallel"};

/// A layer, three branches of unequal weight, and a layer behind them.
ProfileFile::Text branches() {
  std::ostringstream out;
  for (int i = 0; i < 8; ++i)
    out << "node" << i << " -- Layer -- forward_compute_time=" << 1 + i % 5 << ".0, backward_compute_time=" << 2 + i % 3
        << ".5, activation_size=" << 500 * (1 + i % 4) << ".0, parameter_size=" << 1000 * (i % 6) << ".0\n";
  for (const auto& [from, to] : {std::pair(0, 1), {1, 2}, {0, 3}, {3, 4}, {4, 5}, {0, 6}, {2, 7}, {5, 7}, {6, 7}})
    out << "\tnode" << from << " -- node" << to << "\n";
  return {out.str()};
}

/// Four layers in a row, forward and backward: layer i and 10 + i are one class.
ProfileFile::Text classes() {
  std::ostringstream out;
  out << R"({"maxFPGAs": 2, "maxCPUs": 1, "maxSizePerFPGA": 1e6, "nodes": [)";
  for (const int id : {1, 2, 3, 4, 11, 12, 13, 14})
    out << (id > 1 ? ", " : "") << R"({"id": )" << id << R"(, "supportedOnFpga": 1, "cpuLatency": )" << 30 + id
        << R"(, "fpgaLatency": )" << 1 + id % 4 << R"(, "isBackwardNode": )" << (id > 10 ? 1 : 0)
        << R"(, "colorClass": )" << id % 10 << R"(, "size": 100})";
  out << R"(], "edges": [)";
  for (const auto& [from, to] : {std::pair(1, 2), {2, 3}, {3, 4}, {4, 14}, {14, 13}, {13, 12}, {12, 11}})
    out << (from == 1 ? "" : ", ") << R"({"sourceId": )" << from << R"(, "destId": )" << to
        << R"(, "cost": 0.5, "size": 1000})";
  out << "]}";
  return {out.str()};
}

/// What does not say how long the search took.
json decided(json object) {
  object.erase("search_seconds");
  return object;
}

}  // namespace

TEST_CASE("auto is never worse than any planner, whatever the flags say") {
  const std::vector<std::vector<std::string>> machines = {
      {"--devices", "4"},
      {"--devices", "3", "--no-replication"},
      {"--devices", "8", "--use-fewer"},
      {"--devices", "4", "--memory", "30000"},
      {"--topology", "2@1e7,2@1e6"},
      {"--devices", "3", "--micro-batches", "5"},
      {"--devices", "3", "--cpus", "1"},
      {"--machines", "2,4"},
      {"--devices", "4", "--bandwidth", "1e5"},
      {"--devices", "4", "--no-traffic"},
  };
  for (const ProfileFile::Text& profile : {branches(), classes()}) {
    const ProfileFile file(profile);
    const std::string format = profile.text.front() == '{' ? "dnn-partitioning" : "pipedream";
    for (const std::vector<std::string>& machine : machines) {
      const auto answer_of = [&](const std::string& planner) {
        std::vector<std::string> flags{"--profile-format", format, "--planner", planner};
        flags.insert(flags.end(), machine.begin(), machine.end());
        return file.plan(flags);
      };
      const auto best = answer_of("auto");
      CAPTURE(format);
      CAPTURE(machine.back());
      if (format == "pipedream" && machine == std::vector<std::string>{"--devices", "3", "--cpus", "1"}) {
        CHECK(best.code == 2);  // such a profile has no times of CPUs
        continue;
      }
      REQUIRE(best.code == 0);
      CHECK(best.object["bound"] <= best.object["simulated_step"]);
      for (const char* planner : kPlanners) {
        CAPTURE(planner);
        const auto other = answer_of(planner);
        if (other.code != 0 || !other.object["fits_memory"]) continue;
        CHECK(best.object["simulated_step"] <= other.object["simulated_step"]);
      }
      std::vector<std::string> any_runs = machine;
      any_runs.insert(any_runs.end(), {"--profile-format", format, "--planner", "max-throughput", "--non-contiguous"});
      const auto other = file.plan(any_runs);
      REQUIRE(other.code == 0);
      if (other.object["fits_memory"]) CHECK(best.object["simulated_step"] <= other.object["simulated_step"]);
    }
  }
}

TEST_CASE("the plan of a profile has the same bytes on every run, and with two threads as with one") {
  const ProfileFile file(branches());
  for (const char* planner : kPlanners) {
    CAPTURE(planner);
    const auto answer_of = [&](const char* threads) {
      return file.plan({"--profile-format", "pipedream", "--planner", planner, "--devices", "4", "--threads", threads});
    };
    const json first = decided(answer_of("1").object);
    CHECK(decided(answer_of("1").object) == first);
    CHECK(decided(answer_of("2").object) == first);
  }
}

TEST_CASE("layers of one class stay together with every planner, and every plan has a step") {
  const ProfileFile file(classes());
  for (const char* planner : kPlanners) {
    CAPTURE(planner);
    const auto answer = file.plan({"--profile-format", "dnn-partitioning", "--planner", planner});
    REQUIRE(answer.code == 0);
    CHECK(answer.object["simulated_step"].is_number());
    for (const json& stage : answer.object["stages"]) {
      const std::vector<int> nodes = stage["nodes"];
      for (const int id : {1, 2, 3, 4}) CHECK(std::ranges::count(nodes, id) == std::ranges::count(nodes, 10 + id));
    }
  }
}

TEST_CASE("a plan that no number of micro-batches in flight makes fit is said not to fit, and auto takes another") {
  const ProfileFile file;
  const std::vector<std::string> flags{"--profile-format", "pipedream", "--devices", "4", "--memory", "25000"};
  const auto answer_of = [&](const char* planner) {
    std::vector<std::string> words = flags;
    words.insert(words.end(), {"--planner", planner});
    return file.plan(words);
  };
  const auto unaware = answer_of("dapple"), best = answer_of("auto");
  REQUIRE(unaware.code == 0);
  REQUIRE(best.code == 0);
  CHECK(unaware.object["fits_memory"] == false);
  CHECK(unaware.object["simulated_step"].is_number());
  CHECK(best.object["fits_memory"] == true);
  // What `-o` wrote of it is read as it was told.
  const fs::path plan = fs::temp_directory_path() / ("graphpipe-no-fit-" + std::to_string(getpid()) + ".json");
  std::vector<std::string> writing = flags, reading = flags;
  writing.insert(writing.end(), {"--planner", "dapple", "-o", plan.string()});
  reading.insert(reading.end(), {"--plan", plan.string()});
  REQUIRE(file.plan(writing).code == 0);
  const auto read = file.plan(reading);
  fs::remove(plan);
  REQUIRE(read.code == 0);
  CHECK(read.object["fits_memory"] == false);
  CHECK(read.object["simulated_step"] == unaware.object["simulated_step"]);
  CHECK(best.object["limit"].get<std::string>().find("lift it") != std::string::npos);
  // What fits only as its own project counts is timed without the limit, so that its step says nothing.
  const auto counted = answer_of("pipedream");
  CHECK(counted.object["fits_memory"] == false);
  CHECK(counted.object["fits_as_counted_there"] == true);
  CHECK(counted.object["simulated_step"] < best.object["simulated_step"]);
  // The order of gpipe does not throttle: it holds all micro-batches.
  std::vector<std::string> whole = flags;
  whole.insert(whole.end(), {"--policy", "gpipe"});
  CHECK(file.plan(whole).object["fits_memory"] == false);
  CHECK(file.plan(whole).object["simulated_step"].is_number());
}

TEST_CASE("every planner prints the promised fields for a profile") {
  const ProfileFile file;
  for (const char* planner : {"graphpipe", "sequential", "pipedream", "2bw", "equal-split", "piper", "dapple",
                              "torchgpipe", "max-throughput", "alpa", "data-parallel", "model-parallel", "auto"}) {
    CAPTURE(planner);
    const auto answer = file.plan({"--profile-format", "pipedream", "--planner", planner, "--devices", "3"});
    CHECK(answer.code == 0);
    const json& object = answer.object;
    CHECK(object["planner"] == planner);
    for (const char* number : {"objective", "bound", "gap", "search_seconds", "simulated_step"})
      CHECK(object[number].is_number());
    CHECK(object["unit"].is_string());
    CHECK(object["complete"] == true);
    for (const json& stage : object["stages"])
      for (const char* field : {"nodes", "devices", "micro_batch"}) CHECK(stage.contains(field));
  }
}

TEST_CASE("no planner replicates where replication is off") {
  const ProfileFile file;
  for (const char* planner : {"graphpipe", "pipedream", "piper", "dapple", "alpa", "data-parallel", "auto"}) {
    CAPTURE(planner);
    const auto answer =
        file.plan({"--profile-format", "pipedream", "--planner", planner, "--devices", "4", "--no-replication"});
    REQUIRE(answer.code == 0);
    for (const json& stage : answer.object["stages"]) CHECK(stage["devices"].size() == 1);
  }
}

TEST_CASE("flags are followed or refused by name, never passed over") {
  const ProfileFile file;
  struct Case {
    std::vector<std::string> flags;
    const char* named;
  };
  const std::vector<Case> refused = {
      {{"--planner", "pipedream", "--stages", "2"}, "--stages"},
      {{"--planner", "piper", "--replicas", "0=2"}, "--replicas"},
      {{"--planner", "pipedream", "--micro-batch", "7"}, "--micro-batch"},
      {{"--planner", "graphpipe", "--micro-batch", "7"}, "--micro-batch"},
      {{"--planner", "graphpipe", "--cluster", "machines.json"}, "--cluster"},
      {{"--planner", "graphpipe", "--loss", "mse:a,b"}, "--loss"},
      {{"--planner", "data-parallel", "--stages", "2", "--devices", "2"}, "--stages"},
      {{"--planner", "dapple", "--batch", "64", "--micro-batch", "16", "--micro-batches", "2"}, "--micro-batches"},
      {{"--planner", "pipedream", "--batch", "127"}, "--batch 127"},
      {{"--planner", "graphpipe", "--batch", "64", "--micro-batches", "100"}, "--micro-batches 100"},
      {{"--planner", "graphpipe", "--batch", "64", "--micro-batches", "5"}, "--micro-batches 5"},
      {{"--planner", "graphpipe", "--batch", "100", "--micro-batch", "64"}, "--micro-batch 64"},
      {{"--planner", "graphpipe", "--bandwidth", "1e9", "--topology", "2@1e9"}, "--bandwidth"},
      {{"--planner", "graphpipe", "--memory", "1e16"}, "--memory"},
      {{"--planner", "graphpipe", "--bandwidth", "0"}, "--bandwidth"},
      {{"--planner", "graphpipe", "--memory", "0"}, "--memory"},
      {{"--planner", "piper", "--shard-optimizer"}, "--shard-optimizer"},
      {{"--planner", "piper", "--recompute", "always"}, "--recompute always"},
      {{"--planner", "piper", "--plan", "plan.json"}, "--planner"},
      {{"--planner", "piper", "--non-contiguous"}, "--non-contiguous"},
      {{"--planner", "max-throughput", "--non-contiguous", "--compat", "linear"}, "--non-contiguous"},
  };
  for (const Case& wrong : refused) {
    CAPTURE(wrong.named);
    std::vector<std::string> flags{"--profile-format", "pipedream"};
    flags.insert(flags.end(), wrong.flags.begin(), wrong.flags.end());
    const auto answer = file.plan(flags);
    CHECK(answer.code == 2);
    CHECK(answer.message().find(wrong.named) != std::string::npos);
  }
  const auto without_format = file.plan({"--no-replication"});
  CHECK(without_format.code == 2);
  CHECK(without_format.message().find("--no-replication") != std::string::npos);
  const auto stages =
      file.plan({"--profile-format", "pipedream", "--planner", "auto", "--devices", "4", "--stages", "2"});
  CHECK(stages.code == 0);
  CHECK(stages.object["stages"].size() == 2);
  CHECK(file.plan({"--profile-format", "pipedream", "--planner", "piper", "--recompute", "never"}).code == 0);
  const auto units = file.plan({"--profile-format", "pipedream", "--planner", "graphpipe", "--micro-batch", "128"});
  CHECK(units.code == 0);
  for (const json& stage : units.object["stages"]) CHECK(stage["micro_batch"] == 2);
}

TEST_CASE("a plan that is written takes as long when it is read back") {
  const ProfileFile file;
  const fs::path plan = fs::temp_directory_path() / ("graphpipe-plan-" + std::to_string(getpid()) + ".json");
  for (const char* planner :
       {"graphpipe", "sequential", "data-parallel", "pipedream", "dapple", "torchgpipe", "piper", "alpa", "auto"}) {
    CAPTURE(planner);
    std::vector<std::string> flags{"--profile-format", "pipedream", "--devices", "4", "--bandwidth", "1e6"};
    std::vector<std::string> reading = flags;
    flags.insert(flags.end(), {"--planner", planner, "-o", plan.string()});
    reading.insert(reading.end(), {"--plan", plan.string()});
    const auto written = file.plan(flags), read = file.plan(reading);
    REQUIRE(written.code == 0);
    REQUIRE(read.code == 0);
    CHECK(read.object["simulated_step"] == written.object["simulated_step"]);
    // The file says the machine, too.
    const auto alone = file.plan({"--profile-format", "pipedream", "--plan", plan.string()});
    CHECK(alone.object["simulated_step"] == written.object["simulated_step"]);
    REQUIRE(read.object["stages"].size() == written.object["stages"].size());
    for (size_t s = 0; s < read.object["stages"].size(); ++s)
      for (const char* field : {"nodes", "devices", "micro_batch"})
        CHECK(read.object["stages"][s][field] == written.object["stages"][s][field]);
    // The same cut as a chain, asked for as the file says it or not.
    std::vector<std::string> in_line = reading;
    in_line.insert(in_line.end(), {"--execute", "chain"});
    const auto chain = file.plan(in_line);
    REQUIRE(chain.code == 0);
    CHECK(chain.object["simulated_step"].get<double>() >= read.object["simulated_step"].get<double>() * (1 - 1e-9));
    in_line.insert(in_line.end(), {"-o", plan.string() + ".chain"});
    REQUIRE(file.plan(in_line).code == 0);
    reading[reading.size() - 1] += ".chain";
    CHECK(file.plan(reading).object["simulated_step"] == chain.object["simulated_step"]);
    fs::remove(plan.string() + ".chain");
  }
  fs::remove(plan);
}

TEST_CASE("a plan for a profile is drawn: its text, its picture and its trace are of the step that was planned") {
  const ProfileFile file;
  const fs::path plan = fs::temp_directory_path() / ("graphpipe-drawn-" + std::to_string(getpid()) + ".json");
  const fs::path picture = plan.string() + ".picture";
  const std::vector<std::string> format{"--profile-format", "pipedream"};
  const auto simulate = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"simulate", plan.string()});
    flags.insert(flags.end(), format.begin(), format.end());
    return ProfileFile::ask(flags);
  };
  const auto planned = file.plan({"--profile-format", "pipedream", "--devices", "3", "--planner", "sequential",
                                  "--bandwidth", "1e6", "-o", plan.string()});
  REQUIRE(planned.code == 0);
  const auto drawn = simulate({});
  REQUIRE(drawn.code == 0);
  const double step = planned.object["simulated_step"];
  CHECK(drawn.object["simulated_step"].get<double>() == doctest::Approx(step));
  REQUIRE(drawn.object["critical_path"].size() > 0);
  CHECK(drawn.object["critical_path"].back()["end"].get<double>() == doctest::Approx(step));
  CHECK(drawn.object["idle"].size() == 3);
  for (const char* kind : {"trace", "svg"}) {
    REQUIRE(simulate({"--format", kind, "-o", picture.string()}).code == 0);
    std::ostringstream text;
    text << std::ifstream(picture).rdbuf();
    if (kind == std::string("svg")) CHECK(text.str().find("</svg>") != std::string::npos);
    else CHECK(json::parse(text.str())["traceEvents"].size() > 0);
  }
  SUBCASE("a chain stays one") {
    const auto chain = file.plan({"--profile-format", "pipedream", "--devices", "3", "--planner", "sequential",
                                  "--bandwidth", "1e6", "--execute", "chain", "-o", plan.string()});
    CHECK(simulate({}).object["execute"] == "chain");
    CHECK(simulate({}).object["simulated_step"] == chain.object["simulated_step"]);
  }
  SUBCASE("a profile that has changed is another, unless the flag names it") {
    std::ofstream(file.path(), std::ios::app) << "\n";
    CHECK(simulate({}).message().find("its digest differs") != std::string::npos);
    CHECK(simulate({"--profile", file.path()}).code == 0);
  }
  SUBCASE("flags about profiles mean nothing without a format, nor for a plan of a model") {
    CHECK(ProfileFile::ask({"simulate", plan.string(), "--profile", file.path(), "--profile-format", "graphpipe"})
              .message()
              .find("only profiles of other projects take it") != std::string::npos);
    REQUIRE(ProfileFile::ask({"plan", graphpipe::tests::data_path("models/dlrm/model.onnx"), "--loss",
                              "bce:logit,click", "--devices", "2", "--cluster", "default", "-o", plan.string()})
                .code == 0);
    CHECK(simulate({}).message().find("the plan is of a model") != std::string::npos);
  }
  SUBCASE("the flag wins over the plan's own profile, and labels must agree") {
    const ProfileFile other(
        ProfileFile::Text{"other -- Layer -- forward_compute_time=1.0, backward_compute_time=2.0, activation_size=1.0, "
                          "parameter_size=1.0\n"});
    CHECK(simulate({"--profile", other.path()}).code == 3);
  }
  SUBCASE("what it reads is not written over, and nothing has run it") {
    CHECK(simulate({"-o", file.path()}).code == 2);
    CHECK(simulate({"-o", plan.string()}).code == 2);
    CHECK(simulate({"--format", "trace", "--executed", picture.string(), "-o", picture.string() + "2"})
              .message()
              .find("nothing runs the plan") != std::string::npos);
  }
  fs::remove(plan);
  fs::remove(picture);
}

TEST_CASE("a plan that the policy has no schedule for is said to have none, and why") {
  // PipeDream replicates the first stage of VGG-16, and its replicas take turns.
  const ProfileFile file(fs::path(graphpipe::tests::data_path("pipedream/vgg16.txt")));
  const auto planned =
      file.plan({"--profile-format", "pipedream", "--devices", "4", "--planner", "pipedream", "--policy", "pipedream"});
  CHECK(planned.code == 0);
  CHECK(planned.object["simulated_step"].is_null());
  CHECK(planned.object["limit"] == "");
  CHECK(planned.message().find("use pipedream-rr") != std::string::npos);
}

TEST_CASE("a device that holds several runs of layers is a stage for each, simulated, written and read back") {
  std::ostringstream profile;
  profile << R"({"maxFPGAs": 2, "maxCPUs": 0, "maxSizePerFPGA": 1000500, "nodes": [)";
  const int bytes[] = {600'000, 500'000, 400'000, 500'000};  // one run each does not fit
  for (int id = 0; id < 4; ++id)
    profile << (id > 0 ? ", " : "") << R"({"id": )" << id << R"(, "supportedOnFpga": 1, "cpuLatency": 9, )"
            << R"("fpgaLatency": 1, "isBackwardNode": 0, "size": )" << bytes[id] << "}";
  profile << R"(], "edges": [{"sourceId": 0, "destId": 1, "cost": 0.25, "size": 8}, )"
          << R"({"sourceId": 1, "destId": 2, "cost": 0.25, "size": 8}, )"
          << R"({"sourceId": 2, "destId": 3, "cost": 0.25, "size": 8}]})";
  const ProfileFile file(ProfileFile::Text{profile.str()});
  const fs::path plan = fs::temp_directory_path() / ("graphpipe-runs-" + std::to_string(getpid()) + ".json");
  const std::vector<std::string> format{"--profile-format", "dnn-partitioning", "--planner"};
  const auto answer_of = [&](std::vector<std::string> words) {
    words.insert(words.begin(), format.begin(), format.end());
    return file.plan(words);
  };
  CHECK(answer_of({"max-throughput"}).code != 0);
  const auto written = answer_of({"max-throughput", "--non-contiguous", "-o", plan.string()});
  REQUIRE(written.code == 0);
  CHECK(written.object["objective"] == doctest::Approx(2.75));  // all three tensors cross
  CHECK(written.object["fits_memory"] == true);
  CHECK(written.object["limit"] != "");
  REQUIRE(written.object["stages"].size() == 4);
  std::vector<int> devices;
  for (const json& stage : written.object["stages"]) devices.push_back(stage["devices"][0]);
  CHECK(devices == std::vector<int>{0, 1, 0, 1});
  // 16 micro-batches on two devices with two milliseconds of each; and no fewer than they take one after the other.
  CHECK(written.object["simulated_step"] >= 0.032);
  CHECK(written.object["simulated_step"] <= 0.064);
  const auto read = file.plan({"--profile-format", "dnn-partitioning", "--plan", plan.string()});
  REQUIRE(read.code == 0);
  CHECK(read.object["simulated_step"] == written.object["simulated_step"]);
  fs::remove(plan);
}

TEST_CASE("a plan with tensor parallelism and variants of layers takes as long when it is read back") {
  const ProfileFile file(fs::path(graphpipe::tests::data_path("piper/bert32a100.json")));
  const fs::path plan = fs::temp_directory_path() / ("graphpipe-degrees-" + std::to_string(getpid()) + ".json");
  const std::vector<std::string> machine{"--profile-format", "piper", "--devices", "8", "--memory", "8589934592"};
  const auto answer_of = [&](std::vector<std::string> words) {
    words.insert(words.begin(), machine.begin(), machine.end());
    return file.plan(words);
  };
  const auto written = answer_of({"--planner", "piper", "-o", plan.string()});
  REQUIRE(written.code == 0);
  bool beyond = false;
  for (const json& stage : written.object["stages"])
    for (const int variant : stage["variants"]) beyond = beyond || variant != 0 || stage["degree"] > 1;
  REQUIRE(beyond);
  const auto read = answer_of({"--plan", plan.string()});
  REQUIRE(read.code == 0);
  CHECK(read.object["simulated_step"] == written.object["simulated_step"]);
  const auto alone = file.plan({"--profile-format", "piper", "--plan", plan.string()});
  CHECK(alone.object["simulated_step"] == written.object["simulated_step"]);
  REQUIRE(read.object["stages"].size() == written.object["stages"].size());
  for (size_t s = 0; s < read.object["stages"].size(); ++s)
    for (const char* field : {"nodes", "devices", "degree", "variants"})
      CHECK(read.object["stages"][s][field] == written.object["stages"][s][field]);
  // Another profile has no such alternatives.
  const ProfileFile plain;
  const auto refused = plain.plan({"--profile-format", "pipedream", "--devices", "8", "--plan", plan.string()});
  CHECK(refused.code == 3);
  fs::remove(plan);
}

TEST_CASE("a plan on CPUs is not written: a plan file cannot say them") {
  std::ostringstream profile;
  profile << R"({"maxFPGAs": 1, "maxCPUs": 1, "maxSizePerFPGA": 1000, "nodes": [)";
  for (int id = 0; id < 2; ++id)
    profile << (id > 0 ? ", " : "") << R"({"id": )" << id << R"(, "supportedOnFpga": )" << id
            << R"(, "cpuLatency": 1, "fpgaLatency": 1, "isBackwardNode": 0, "size": 8})";
  profile << R"(], "edges": [{"sourceId": 0, "destId": 1, "cost": 0.25, "size": 8}]})";
  const ProfileFile file(ProfileFile::Text{profile.str()});
  const fs::path plan = fs::temp_directory_path() / ("graphpipe-unsaid-" + std::to_string(getpid()) + ".json");
  const auto answer =
      file.plan({"--profile-format", "dnn-partitioning", "--planner", "max-throughput", "-o", plan.string()});
  CHECK(answer.code == 2);
  CHECK_FALSE(fs::exists(plan));
  CHECK(answer.message().find("runs on a CPU") != std::string::npos);
}
