// Flags of a run in a TOML file.

#include "driver/cli/config_file.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/driver/ask.h"
#include "tests/support/onnx_text.h"
#include "tests/support/test_data.h"

using namespace graphpipe;
using namespace graphpipe::driver;

namespace {

std::string write_temporary(const std::string& text) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("graphpipe-config-" + std::to_string(getpid()) + ".toml")).string();
  std::ofstream(path) << text;
  return path;
}

Diagnostics read(const std::string& text, Options& options, wire::FlagUser user = wire::FlagUser::kRun) {
  const std::string path = write_temporary(text);
  const Status status = read_config(path, user, options);
  std::filesystem::remove(path);
  return status.ok() ? Diagnostics() : status.problems();
}

}  // namespace

TEST_CASE("a file of flags means what the flags mean, and those that are typed win") {
  Options options;
  options.given = {"--lr"};
  options.run.optimizer.learning_rate = 7;
  const Diagnostics problems = read(R"(
steps = 12
lr = 0.5
betas = [0.5, 0.25]
data = "some folder"
nesterov = true
momentum = 1
seed = "18446744073709551615"
[[group]]
pattern = 'a"*'
lr = 2
[[group]]
pattern = "b:*"
weight-decay = 0.5
)",
                                    options);
  CHECK(problems.empty());
  CHECK(options.run.data.steps == 12);
  CHECK(options.run.optimizer.learning_rate == 7.0);
  CHECK(options.run.optimizer.betas == wire::Betas{0.5, 0.25});
  CHECK(options.run.optimizer.nesterov);
  CHECK(options.run.optimizer.momentum == 1.0);
  CHECK(options.run.data.seed == 18446744073709551615u);
  REQUIRE(options.run.optimizer.groups.size() == 2);
  CHECK(options.run.optimizer.groups[0].pattern == "a\"*");
  CHECK(options.run.optimizer.groups[1].weight_decay == 0.5);
  CHECK(options.given.contains("--steps"));

  // What is written back gives the same run.
  Options again;
  CHECK(read(config_text(options.run), again).empty());
  CHECK(again.run == options.run);
}

TEST_CASE("what may be given several times is a list, and one value of it is enough") {
  Options options;
  REQUIRE(read("pad = [\"tokens=0\", \"labels=-100\"]\n", options).empty());
  REQUIRE(options.run.data.paddings.size() == 2);
  CHECK(options.run.data.paddings[1] == wire::Padding{"labels", -100});
  Options again;
  CHECK(read(config_text(options.run), again).empty());
  CHECK(again.run == options.run);
  Options one;
  CHECK(read("pad = \"tokens=0\"\n", one).empty());
  CHECK(one.run.data.paddings == std::vector{wire::Padding{"tokens", 0}});
}

TEST_CASE("a switch that a file turns off counts as not given") {
  Options options;
  CHECK(read("nesterov = false\n", options).empty());
  CHECK_FALSE(options.run.optimizer.nesterov);
  CHECK_FALSE(options.given.contains("--nesterov"));
}

TEST_CASE("typed groups take the place of those of the file") {
  Options options;
  options.given = {"--group"};
  options.run.optimizer.groups = {{.pattern = "x", .learning_rate = 1, .weight_decay = {}}};
  CHECK(read("group = ['y:lr=2']\n", options).empty());
  REQUIRE(options.run.optimizer.groups.size() == 1);
  CHECK(options.run.optimizer.groups[0].pattern == "x");
}

TEST_CASE("verify leaves what only run takes") {
  Options options;
  CHECK(read("save = 'x'\nsteps = 3\n", options, wire::FlagUser::kRunAndVerify).empty());
  CHECK(options.run.output.save.empty());
  CHECK(options.run.data.steps == 3);
}

TEST_CASE("wrong lines of a file of flags are named, all at once") {
  for (const char* wrong :
       {"steps = 0", "steps = 'x'", "lr = -1", "lr = nan", "lr = [1, 'x']", "lrr = 1", "nesterov = 1", "rank = 3",
        "json = true", "betas = [0.5]", "group = 3", "[[group]]\nlr = 1", "[[group]]\npattern = 'a'",
        "[[group]]\npattern = 'a'\nmomentum = 1", "[lr]\nx = 1", "lr = ", "lr = 1\nlr = 2", "lr = 2020-01-01"}) {
    CAPTURE(wrong);
    Options options;
    const Diagnostics problems = read(wrong, options);
    REQUIRE(problems.size() == 1);
    CHECK(exit_code_of(problems[0].code) == 3);
    CHECK(problems[0].message.starts_with("line "));
    CHECK_FALSE(problems[0].hint.empty());
  }
  Options options;
  CHECK(read("steps = 0\nlrr = 1\n", options).size() == 2);
  CHECK(read(std::string(100000, '['), options).size() == 1);
  CHECK_FALSE(read_config("/nowhere", wire::FlagUser::kRun, options).ok());
}

TEST_CASE("plan, compare and compile take their flags from a file; those that are typed win") {
  const graphpipe::testing::TemporaryFolder folder;
  folder.write("flags.toml", R"(devices = 2
batch = 8
loss = "bce:logit,click"
micro-batch = 4
one-sample = false
freeze = ["dense.*", "top.0.*"]
cluster = "default"
planner = "sequential"
)");
  const std::string model = tests::data_path("models/dlrm/model.onnx"), file = folder / "flags.toml";
  const auto planned = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"plan", model, "--json"});
    const tests::Answer answer = tests::ask(words);
    CAPTURE(answer.err);
    REQUIRE(answer.code == 0);
    auto object = answer.object();
    object.erase("search_seconds");
    return object;
  };
  const auto typed =
      planned({"--devices", "2", "--batch", "8", "--loss", "bce:logit,click", "--micro-batch", "4", "--freeze",
               "dense.*", "--freeze", "top.0.*", "--cluster", "default", "--planner", "sequential"});
  CHECK(planned({"--config", file}) == typed);
  CHECK(planned({"--config=" + file}) == typed);
  CHECK(planned({"--config", file, "--batch", "16"})["batch"] == 16);
  // What a verb must have may stand in the file.
  folder.write("output.toml", "output = '" + (folder / "plan.json") + "'\n");
  CHECK(planned({"--config", file})["planner"] == "sequential");
  CHECK(tests::ask({"compare", model, "--config", file}).code == 3);  // --planner is no flag of it
}

TEST_CASE("wrong lines of a file of flags of plan are named, all at once, and wrong values as if they were typed") {
  const graphpipe::testing::TemporaryFolder folder;
  const auto refused = [&](const std::string& text) {
    folder.write("flags.toml", text);
    return tests::ask({"plan", tests::data_path("models/dlrm/model.onnx"), "--config", folder / "flags.toml", "--loss",
                       "bce:logit,click"});
  };
  const tests::Answer both = refused("devicse = 2\nbatch = [[1]]\nno-replication = 1\njson = true\n");
  CHECK(both.code == 3);
  for (const char* part : {"line 1: there is no flag '--devicse'; did you mean 'devices'?", "line 2: batch takes",
                           "line 3: no-replication takes true or false", "line 4: there is no flag '--json'"})
    CHECK_MESSAGE(both.err.find(part) != std::string::npos, both.err);
  CHECK(refused("devices = 'two'\n").code == 2);
  CHECK(refused("devices = [1, 2]\n").code == 2);
  CHECK(refused("devices = \n").code == 3);
}
