#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "driver/cli/byte_words.h"
#include "driver/cli/commands.h"
#include "partitioner/planner.h"
#include "tests/driver/ask.h"

using namespace graphpipe;
using namespace graphpipe::tests;

TEST_CASE("help lists every verb, and every verb's help shows its example") {
  const Answer overview = ask({"--help"});
  CHECK(overview.code == 0);
  for (const driver::CommandEntry& row : driver::all_commands()) {
    CAPTURE(row.name);
    CHECK(holds(overview.out, std::string(row.name)));
    const Answer help = ask({std::string(row.name), "--help"});
    CHECK(help.code == 0);
    CHECK(holds(help.out, std::string(row.example)));
    CHECK(holds(help.out, "--json"));
  }
}

TEST_CASE("no verb and an unknown verb are usage errors; a near miss is named") {
  CHECK(ask({}).code == 2);
  const Answer answer = ask({"comple"});
  CHECK(answer.code == 2);
  CHECK(holds(answer.err, "did you mean 'compile'?"));
  CHECK_FALSE(holds(ask({"zzzzzzzzzz"}).err, "did you mean"));
}

TEST_CASE("an unknown flag is refused with the nearest one; underscores pass for dashes") {
  const Answer answer = ask({"plan", "model.onnx", "--micro-bach", "2"});
  CHECK(answer.code == 2);
  CHECK(holds(answer.err, "did you mean '--micro-batch'?"));
  // The flag is known, so the complaint is about the model.
  const Answer underscore = ask({"plan", "no_such_model.onnx", "--micro_batch=2"});
  CHECK(underscore.code == 3);
}

TEST_CASE("a flag of other verbs is refused with their names") {
  const Answer answer = ask({"run", "build/first", "--optimizer", "adamw"});
  CHECK(answer.code == 2);
  CHECK(holds(answer.err, "unknown flag '--optimizer', which belongs to "));
  CHECK(holds(answer.err, "compile"));
  CHECK_FALSE(holds(answer.err, "verify"));
}

TEST_CASE("values outside a flag's range are usage errors") {
  CHECK(ask({"plan", "m.onnx", "--devices", "0"}).code == 2);
  CHECK(ask({"plan", "m.onnx", "--batch", "-3"}).code == 2);
  CHECK(ask({"plan", "m.onnx", "--optimizer", "sdg"}).code == 2);
  CHECK(ask({"plan", "m.onnx", "--batch", "many"}).code == 2);
  CHECK(ask({"plan"}).code == 2);
  CHECK(ask({"plan", "m.onnx", "--trusted-root", "/no/such/folder"}).code == 2);
  CHECK(ask({"plan", "m.onnx", "--bandwidth", "1e-30"}).code == 2);
  const Answer twice = ask({"plan", "m.onnx", "--batch", "2", "--batch", "4"});
  CHECK(twice.code == 2);
  CHECK(holds(twice.err, "--batch is given more than once, and takes one value"));
}

TEST_CASE("sizes are numbers of bytes, alone or with units of 1000 and of 1024") {
  const std::pair<const char*, double> sizes[] = {
      {"4", 4},        {"1.5e9", 1.5e9}, {"16GiB", 16.0 * (1 << 30)}, {"16 GB", 16e9},
      {"0.5KiB", 512}, {"2TB", 2e12},    {"3MiB", 3.0 * (1 << 20)}};
  for (const auto& [word, bytes] : sizes) {
    CAPTURE(word);
    CHECK(driver::bytes_of_word(word) == bytes);
  }
  for (const char* word : {"", "B", "GB", "4G", "4gib", "GiB4", "4 GiB ", "4  GB", "4XB", "iB", "4iB"}) {
    CAPTURE(word);
    CHECK(!driver::bytes_of_word(word));
  }
  CHECK(ask({"plan", "m.onnx", "--memory", "4G"}).err.find("alone or with KB") != std::string::npos);
}

TEST_CASE("a flag in the place of a value, as an unset variable leaves it, is no value") {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"plan", "m.onnx", "-o", "--json"}, {"plan", "m.onnx", "--profile=--batch=3"}}) {
    const Answer answer = ask(words);
    CHECK(answer.code == 2);
    CHECK(holds(answer.err, "is followed by the flag"));
  }
}

TEST_CASE("what several flags say of one thing must agree") {
  const std::string model = GRAPHPIPE_SOURCE_DIR "/tests/data/models/dlrm/model.onnx";
  const Answer twice = ask({"plan", model, "--loss", "bce:logit,click", "--devices", "2", "--batch", "8", "--replicas",
                            "0=2", "--replicas", "0=1"});
  CHECK(twice.code == 2);
  CHECK(holds(twice.err, "another --replicas is about the same stage"));
  CHECK(ask({"lint", model, "--contrastive", "micro-batch"}).code == 2);
  CHECK(ask({"lint", model, "--precision", "bf16"}).code == 2);
  const Answer manual = ask({"compare", model, "--loss", "bce:logit,click", "--planners", "sequential,manual"});
  CHECK(manual.code == 2);
  CHECK(holds(manual.err, "graphpipe report"));
}

TEST_CASE("two sizes of one dimension contradict each other") {
  const Answer answer = ask({"plan", "m.onnx", "--bind", "T=3", "--bind", "S=2", "--bind", "T=4"});
  CHECK(answer.code == 2);
  CHECK(holds(answer.err, "--bind T=4"));
  CHECK_FALSE(holds(ask({"plan", "m.onnx", "--bind", "T=3", "--bind", "T=3"}).err, "--bind"));
}

TEST_CASE("what a terminal would obey is shown escaped") {
  const Answer answer = ask({"plan", "m.onnx", "--\x1b[31mred"});
  CHECK(answer.code == 2);
  CHECK(holds(answer.err, "\\x1b"));
  CHECK_FALSE(holds(answer.err, "\x1b"));
}

TEST_CASE("a missing model is an input error that names the file, with --json also an object") {
  const Answer answer = ask({"inspect", "no_such_model.onnx", "--json"});
  CHECK(answer.code == 3);
  CHECK(holds(answer.err, "no_such_model.onnx"));
  CHECK(holds(answer.out, "\"diagnostics\": [{\"code\""));
  CHECK(holds(answer.out, "\"complete\": false"));
}

TEST_CASE("a flag that may be repeated takes one word each time and leaves the model alone") {
  for (const std::string flag : {"--freeze=text*", "--freeze"}) {
    CAPTURE(flag);
    std::vector<std::string> words{"inspect", flag};
    if (flag == "--freeze") words.push_back("text*");
    words.push_back("no_such_model.onnx");
    CHECK(ask(words).code == 3);  // the model was seen, and is not there
  }
}

TEST_CASE("help shows what a flag takes, its limits and its default") {
  const Answer plan = ask({"plan", "--help"});
  CHECK(holds(plan.out, "--dropout on|off        whether Dropout is active (default off)"));
  CHECK(holds(plan.out, "--batch N               samples of one training step (default 8)"));
  CHECK(holds(plan.out, "(1 to 1024; default 1)"));
  CHECK(holds(plan.out, "--no-replication        one device per stage"));
  CHECK(holds(plan.out, "(default auto): auto|graphpipe|"));
  CHECK(!holds(plan.out, "default 0"));
  std::istringstream lines(plan.out);
  for (std::string line; std::getline(lines, line);) CHECK(line.size() <= 120);
  CHECK(holds(ask({"run", "--help"}).out, "[0, 1) (0.9,0.999; Muon 0.9,0.95)"));
}

TEST_CASE("docs/planners.md names every planner and every quirk") {
  std::ifstream file(GRAPHPIPE_SOURCE_DIR "/docs/planners.md");
  std::stringstream page;
  page << file.rdbuf();
  const std::string text = page.str();
  const auto names = [&](std::string_view name) { return holds(text, "`" + std::string(name) + "`"); };
  for (const partitioner::PlannerEntry& row : partitioner::planners()) {
    CHECK_MESSAGE(names(row.name), row.name);
    for (const partitioner::Quirk& quirk : row.quirks) CHECK_MESSAGE(names(quirk.name), quirk.name);
  }
}

TEST_CASE("planners and policies are named in the help, and a mistyped one is a usage error that names the nearest") {
  const Answer help = ask({"plan", "--help"});
  CHECK(holds(help.out, "kfkb"));
  CHECK(holds(help.out, "exhaustive"));
  const Answer policy = ask({"plan", "m.onnx", "--policy", "kfkbb"});
  CHECK(policy.code == 2);
  CHECK(holds(policy.err, "kfkb"));
  CHECK(holds(policy.err, "did you mean"));
  const Answer planner = ask({"plan", "m.onnx", "--planner", "graphpip"});
  CHECK(planner.code == 2);
  CHECK(holds(planner.err, "did you mean"));
}

TEST_CASE("every 64-bit seed is taken, and what does not fit or is no number is refused") {
  CHECK(ask({"plan", "no_such_model.onnx", "--seed", "18446744073709551615"}).code == 3);
  CHECK(ask({"plan", "no_such_model.onnx", "--seed", "18446744073709551616"}).code == 2);
  CHECK(ask({"plan", "no_such_model.onnx", "--seed", "-1"}).code == 2);
  for (const std::string number : {"nan", "inf", "-0.5", "1e400", "x"}) {
    CAPTURE(number);
    CHECK(ask({"run", "no_such_folder", "--lr", number}).code == 2);
  }
}

TEST_CASE("a path that the file system refuses is a report, not a crash; with --json also an object") {
  const std::string longer_than_any_name(5000, 'a');
  for (const std::string verb : {"simulate", "build", "verify", "run"}) {
    CAPTURE(verb);
    const Answer answer = ask({verb, longer_than_any_name, "--json"});
    CHECK((answer.code == 3 || answer.code == 5));
    CHECK(holds(answer.out, "\"complete\": false"));
  }
}

TEST_CASE("a folder whose path CMake cannot write is refused before anything is planned") {
  for (const char* name : {"semi;colon", "quotation\"mark", "back\\slash", "line\nbreak"}) {
    CAPTURE(name);
    const std::string folder = (std::filesystem::temp_directory_path() / name).string();
    const Answer answer = ask({"compile", example_model("dlrm"), "--cluster", "default", "--devices", "2", "--loss",
                               "bce:logit,click", "-o", folder});
    CHECK(answer.code == 2);
    CHECK(holds(answer.err, "CMake cannot build in a folder whose path holds"));
    CHECK_FALSE(std::filesystem::exists(folder));
  }
}

TEST_CASE("a usage error with --json is an object too") {
  const Answer answer = ask({"plan", "m.onnx", "--json", "--batch", "0"});
  CHECK(answer.code == 2);
  CHECK(holds(answer.out, "\"schema\": \"graphpipe.plan/1\""));
  CHECK(holds(answer.out, "\"code\": \"usage\""));
}

TEST_CASE("a freeze pattern is taken as it is, and one that names nothing is refused") {
  const std::string model = GRAPHPIPE_SOURCE_DIR "/tests/data/models/dlrm/model.onnx";
  for (const std::string pattern : {"#bottom*", "a b"}) {
    CAPTURE(pattern);
    const Answer answer = ask({"plan", model, "--loss", "bce:logit,click", "--freeze", pattern});
    CHECK(answer.code == 3);
    CHECK(holds(answer.err, "names no parameter"));
  }
}

TEST_CASE("a plan whose replicas divide the state of an optimizer that cannot is refused by its field") {
  const std::string model = GRAPHPIPE_SOURCE_DIR "/tests/data/models/dlrm/model.onnx";
  const std::string path = (std::filesystem::temp_directory_path() / "graphpipe_sharded_plan.json").string();
  const std::vector<std::string> plan{"plan", model, "--loss", "bce:logit,click", "--devices", "2"};
  std::vector<std::string> writes = plan, reads = plan;
  writes.insert(writes.end(), {"--planner", "data-parallel", "--optimizer", "lamb", "-o", path});
  REQUIRE(ask(writes).code == 0);
  std::stringstream content;
  content << std::ifstream(path).rdbuf();
  std::string edited = content.str();
  const std::string field = "\"shard_optimizer_state\": ";
  const size_t at = edited.find(field + "false");
  REQUIRE(at != std::string::npos);
  edited.replace(at + field.size(), 5, "true");
  std::ofstream(path) << edited;
  reads.insert(reads.end(), {"--plan", path});
  const Answer simulated = ask(reads);  // it may be
  CHECK(simulated.code == 0);
  CHECK(holds(simulated.out, "`generate` refuses this: optimizer lamb"));
  const Answer answer = ask({"generate", path, "-o", path + ".folder"});
  std::filesystem::remove(path);
  CHECK(answer.code == 3);
  CHECK(holds(answer.err, "stages[0].shard_optimizer_state"));
  CHECK(holds(answer.err, "optimizer lamb"));
  CHECK_FALSE(std::filesystem::exists(path + ".folder"));
}

TEST_CASE("the state of an optimizer that replicas cannot divide is refused before a search") {
  const Answer answer = ask({"plan", GRAPHPIPE_SOURCE_DIR "/tests/data/models/dlrm/model.onnx", "--loss",
                             "bce:logit,click", "--devices", "2", "--shard-optimizer", "--optimizer", "muon"});
  CHECK(answer.code == 2);
  CHECK(holds(answer.err, "--shard-optimizer: optimizer muon"));
}

TEST_CASE("without a loss, one that the model has is told") {
  const std::string data = GRAPHPIPE_SOURCE_DIR "/tests/data/";
  const Answer logits = ask({"plan", data + "models/dlrm/model.onnx"});
  CHECK(logits.code == 3);
  CHECK(holds(logits.err, "--loss cross_entropy:'logit',LABEL, where LABEL.npy"));
  const Answer own = ask({"plan", data + "exports/gpt2_labels/model.onnx", "--batch", "8"});
  CHECK(holds(own.err, "--loss output:'loss'"));
}

TEST_CASE("run does not overwrite the folder's initial weights") {
  const Answer answer = ask({"run", "some_folder", "--save", "some_folder/./weights.safetensors"});
  CHECK(answer.code == 2);
  CHECK(holds(answer.err, "initial weights"));
}

TEST_CASE("run does not write one of its files over another") {
  const Answer answer = ask({"run", "some_folder", "--save", "kept.safetensors", "--trace", "./kept.safetensors"});
  CHECK(answer.code == 2);
  CHECK(holds(answer.err, "the same file as --save"));
}

TEST_CASE("compare ranks forwards alone by forwards alone") {
  const std::string model = GRAPHPIPE_SOURCE_DIR "/tests/data/models/resnet/model.onnx";
  const std::vector<std::string> words{"compare", model, "--batch", "8", "--planners", "data-parallel", "--json", "-q"};
  std::vector<std::string> alone = words, mixed = words;
  alone.insert(alone.end(), {"--policies", "inference"});
  const Answer compared = ask(alone);
  REQUIRE(compared.code == 0);  // without a loss
  const Answer planned =
      ask({"plan", model, "--batch", "8", "--planner", "data-parallel", "--policy", "inference", "--json", "-q"});
  REQUIRE(planned.code == 0);
  const nlohmann::json plan = planned.object();
  CHECK(compared.object()["plans"][0]["simulated_step"] == plan["simulated_step"]);
  CHECK(plan["bound"] <= plan["simulated_step"]);
  mixed.insert(mixed.end(), {"--policies", "inference,kfkb"});
  CHECK(ask(mixed).code == 2);
}

TEST_CASE("an empty value is a mistake, and a plan that is given may be called manual") {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"plan", "m.onnx", "-o", ""}, {"plan", "m.onnx", "--loss", ""}, {"simulate", "plan.json", "--output", ""}}) {
    const Answer answer = ask(words);
    CHECK(answer.code == 2);
    CHECK(holds(answer.err, "empty value"));
  }
  // Both flags are taken, so the complaint is about the model.
  CHECK(ask({"plan", "no_such_model.onnx", "--plan", "plan.json", "--planner", "manual"}).code == 3);
  CHECK(ask({"plan", "no_such_model.onnx", "--plan", "plan.json", "--planner", "graphpipe"}).code == 2);
}
