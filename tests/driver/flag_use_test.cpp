// Flags that would do nothing are usage errors, and names that programs cannot carry are refused.

#include "driver/cli/flag_use.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/driver/ask.h"

using namespace graphpipe;
using namespace graphpipe::tests;

namespace {

bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// The flags that are refused, in the order of the table.
std::vector<std::string> refused(std::set<std::string> given, const driver::RunFacts& facts,
                                 wire::RunOptions run = {}) {
  driver::Options options;
  options.run = std::move(run);
  options.given = std::move(given);
  std::vector<std::string> flags;
  const Status checked = driver::check_run_flags(options, facts);
  for (const Diagnostic& problem : checked.problems()) {
    CHECK(exit_code_of(problem.code) == 2);
    CHECK_FALSE(problem.hint.empty());
    flags.push_back(problem.origin.raw());
  }
  return flags;
}

using Flags = std::vector<std::string>;

std::string temporary(const std::string& name) {
  return (std::filesystem::temp_directory_path() / ("graphpipe-flags-" + std::to_string(getpid()) + name)).string();
}

}  // namespace

TEST_CASE("a flag of run and verify is refused where the folder has no use for it, all at once") {
  const std::set<std::string> all{"--lr",        "--momentum",       "--weight-decay", "--betas",
                                  "--eps",       "--seed",           "--clip-norm",    "--stall-timeout",
                                  "--transport", "--save-gradients", "--tolerance",    "--on-anomaly"};
  CHECK(refused(all, {.devices = 2}) == Flags{"--betas", "--eps"});
  CHECK(refused(all, {.optimizer = "adamw", .devices = 2}) == Flags{"--momentum"});
  CHECK(refused({"--transport", "--lr"}, {.devices = 1}) == Flags{"--transport"});
  CHECK(refused({"--overlap-all-reduce"}, {.sums_gradients = false}) == Flags{"--overlap-all-reduce"});
  CHECK(refused({"--overlap-all-reduce"}, {}).empty());
  CHECK(refused({"--stall-timeout"}, {.devices = 1}) == Flags{"--stall-timeout"});
  CHECK(refused({"--stall-timeout"}, {.is_fed = true, .devices = 1}).empty());
  CHECK(refused({"--seed"}, {.random = false, .devices = 2}) == Flags{"--seed"});
  CHECK(refused({"--no-decay"}, {.decays = false}) == Flags{"--no-decay"});
  CHECK(refused({"--no-decay"}, {.decays = true}).empty());
  CHECK(refused({"--ema"}, {.divides_main_weights = true}) == Flags{"--ema"});
  CHECK(refused({"--ema"}, {}).empty());
  CHECK(refused({"--save"}, {}, {.output = {.save = "w.pt", .save_outputs = "o.npz"}}) ==
        Flags{"--save", "--save-outputs"});
  CHECK(refused({"--save"}, {}, {.output = {.save = "w.safetensors", .save_outputs = "outputs"}}).empty());
  CHECK(refused({"--tolerance"}, {.synchronous = false, .devices = 2}) == Flags{"--tolerance"});
  CHECK(refused({"--clip-norm"}, {.updates_at_end = false}) == Flags{"--clip-norm"});
  CHECK(refused(all, {.trains = false, .devices = 2}) == Flags{"--lr", "--weight-decay", "--clip-norm", "--momentum",
                                                               "--betas", "--eps", "--save-gradients", "--on-anomaly"});
  CHECK(refused({"--nesterov", "--eps"}, {.optimizer = "adam"}) == Flags{"--nesterov"});
  CHECK(refused({"--checkpoint", "--resume"}, {.trains = false, .devices = 2}) == Flags{"--checkpoint", "--resume"});
  const std::set<std::string> of_checkpoints{"--checkpoint-every", "--checkpoint-minutes", "--keep", "--restarts",
                                             "--resume-changed"};
  CHECK(refused(of_checkpoints, {}) ==
        Flags{"--checkpoint-every", "--checkpoint-minutes", "--keep", "--restarts", "--resume-changed"});
  CHECK(refused(of_checkpoints, {.takes_checkpoints = true, .resumes = true}).empty());
  const std::set<std::string> of_devices{"--no-arena", "--no-cuda-graphs"};
  CHECK(refused(of_devices, {}) == Flags{"--no-cuda-graphs"});
  CHECK(refused(of_devices, {.on_gpu = true}) == Flags{"--no-arena"});
  CHECK(refused({}, {.trains = false, .random = false, .devices = 1}).empty());
}

TEST_CASE("what a flag would need is not asked for where the folder has no use for it") {
  wire::RunOptions nesterov;
  nesterov.optimizer.nesterov = true;
  CHECK(refused({"--nesterov"}, {.optimizer = "sgd"}, nesterov) == Flags{"--nesterov"});
  CHECK(refused({"--nesterov"}, {.optimizer = "adamw"}, nesterov) == Flags{"--nesterov"});
  nesterov.optimizer.momentum = 0.9;
  CHECK(refused({"--nesterov"}, {.optimizer = "sgd"}, nesterov).empty());
}

TEST_CASE("steps cannot be skipped where a schedule updates weights inside them") {
  const std::string model = GRAPHPIPE_SOURCE_DIR "/tests/data/models/dlrm/model.onnx", folder = temporary("async");
  const std::string plan = folder + ".json";
  REQUIRE(ask({"plan", model, "--loss", "bce:logit,click", "--devices", "2", "--stages", "2", "--micro-batch", "2",
               "--policy", "pipedream", "-o", plan, "-q"})
              .code == 0);
  REQUIRE(ask({"generate", plan, "-o", folder, "-q"}).code == 0);
  const Answer skipping = ask({"run", folder, "--on-anomaly", "skip"});
  CHECK(skipping.code == 2);
  CHECK(says(skipping.err, "it updates weights inside the step"));
  CHECK_FALSE(says(ask({"run", folder, "--on-anomaly", "end"}).err, "updates weights inside the step"));
  std::filesystem::remove_all(folder);
  std::filesystem::remove(plan);
}

TEST_CASE("flags that other flags make useless are refused with the reason") {
  const std::string model = GRAPHPIPE_SOURCE_DIR "/tests/data/models/dlrm/model.onnx";
  const std::string plan = temporary("plan.json");
  REQUIRE(ask({"plan", model, "--loss", "bce:logit,click", "--devices", "2", "-o", plan, "-q"}).code == 0);
  struct Case {
    std::vector<std::string> words;
    std::string flag;
  };
  const std::vector<std::string> given{"plan", model, "--loss", "bce:logit,click", "--devices", "2", "--plan", plan};
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> words = given;
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  for (const Case& wrong :
       std::vector<Case>{{with({"--stages", "2"}), "--stages"},
                         {with({"--planner", "sequential"}), "--planner"},
                         {with({"--micro-batch", "2"}), "--micro-batch"},
                         {with({"--replicas", "0=2"}), "--replicas"},
                         {with({"--recompute", "always"}), "--recompute"},
                         {with({"--time-limit", "3"}), "--time-limit"},
                         {with({"--batch", "4"}), "--batch"},
                         {with({"--order", "x.csv", "--policy", "gpipe"}), "--policy"},
                         {with({"--order", "x.csv", "--update", "4"}), "--update"},
                         {with({"--order", "x.csv", "--drain-every", "4"}), "--drain-every"},
                         {with({"--policy", "1f1b", "--backward", "lifo"}), "--backward"},
                         {{"plan", model, "--profile-format", "graphpipe", "--topology", "2@1e9"}, "--topology"},
                         {{"plan", model, "--policy", "inference", "--optimizer", "adamw"}, "--optimizer"},
                         {{"plan", model, "--policy", "inference", "--recompute", "always"}, "--recompute"},
                         {{"inspect", model, "--dropout", "on"}, "--dropout"},
                         {{"plan", model, "--loss", "bce:logit,click", "--batchnorm", "eval"}, "--batchnorm"},
                         {{"lint", model, "--batch", "4"}, "--batch"},
                         {{"lint", model, "--seed", "4"}, "--seed"},
                         {{"profile", model, "--data", "x", "--seed", "3", "-o", "y"}, "--seed"}}) {
    CAPTURE(wrong.flag);
    const Answer answer = ask(wrong.words);
    CAPTURE(answer.err);
    CHECK(answer.code == 2);
    CHECK(says(answer.err, wrong.flag));
  }
  CHECK(ask(given).code == 0);
  CHECK(ask(with({"--policy", "kfkb"})).code == 0);  // says what the plan says
  std::filesystem::remove(plan);
}

TEST_CASE("what a stage graph's file says leaves the flags of a schedule nothing to say") {
  const std::string dag = temporary("dag.json");
  std::ofstream(dag) << R"({"predecessors": [[], [0], [1]], "micro_batch_size": 1, "batch": 6, "latency": 0.5})";
  const std::vector<std::string> right{"schedule", "--policy", "gpipe", "--dag", dag};
  CHECK(ask(right).code == 0);
  for (const std::vector<std::string>& more :
       std::vector<std::vector<std::string>>{{"--micro-batches", "4"}, {"--latency", "2"}}) {
    std::vector<std::string> words = right;
    words.insert(words.end(), more.begin(), more.end());
    const Answer answer = ask(words);
    CAPTURE(answer.err);
    CHECK(answer.code == 2);
    CHECK(says(answer.err, more[0]));
  }
  std::filesystem::remove(dag);
}

TEST_CASE("a parameter whose name programs or files cannot hold is refused by lint") {
  std::ifstream file(GRAPHPIPE_SOURCE_DIR "/tests/data/models/dlrm/model.onnx", std::ios::binary);
  std::stringstream stream;
  stream << file.rdbuf();
  const std::string content = stream.str();
  const std::string path = temporary("model.onnx"), name = "tables.0.weight";
  struct Case {
    std::string name, shown, problem;
  };
  // The same length, so that every size in the file stays right.
  for (const Case& bad : {Case{std::string("tables\0000.weight", 15), "tables\\x000.weight", "zero byte"},
                          {"tables\xff"
                           "0.weight",
                           "tables\\xff0.weight", "no UTF-8"}}) {
    REQUIRE(bad.name.size() == name.size());
    std::string changed = content;
    size_t found = 0;
    for (size_t at = changed.find(name); at != std::string::npos; at = changed.find(name, at + 1), ++found)
      changed.replace(at, name.size(), bad.name);
    REQUIRE(found > 1);
    std::ofstream(path, std::ios::binary) << changed;
    for (const std::vector<std::string>& words :
         std::vector<std::vector<std::string>>{{"lint", path},
                                               {"lint", path, "--loss", "bce:logit,click"},
                                               {"plan", path, "--loss", "bce:logit,click"}}) {
      const Answer answer = ask(words);
      CAPTURE(answer.err);
      CHECK(answer.code == 3);
      CHECK(says(answer.err, bad.shown));
      CHECK(says(answer.err, bad.problem));
    }
  }
  std::filesystem::remove(path);
}
