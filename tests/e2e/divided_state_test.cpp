// Replicas that divide the optimizer's state: a training has the bits of one where each keeps all of it, takes less
// memory, and goes on from the other's checkpoint.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "driver/launch/digest.h"
#include "tests/e2e/pipeline_run.h"
#include "tests/support/onnx_text.h"

using namespace graphpipe::tests;
using nlohmann::json;

namespace {

using Words = std::vector<std::string>;

/// Two stages of two and three replicas: weights that two stages share, and parameters of fewer elements than replicas.
struct TwoPlans {
  const Reference reference = read_reference("gpt2_like");
  const std::string whole = work_folder("state_whole"), divided = work_folder("state_divided");
  TwoPlans() {
    const std::string plan = whole + ".plan.json";
    make_plan(reference, plan,
              {"--devices", "5", "--planner", "equal-split", "--stages", "2", "--replicas", "0=2", "--replicas", "1=3",
               "--micro-batch", "1", "--optimizer", "adamw"});
    compile(reference, whole, {"--devices", "5", "--plan", plan});
    std::string text = read_text(plan);
    const std::string field = "\"shard_optimizer_state\": ";
    for (size_t at = text.find(field); at != std::string::npos; at = text.find(field, at + 1))
      text.replace(at + field.size(), text.find_first_of(",\n}", at) - at - field.size(), "true");
    std::ofstream(plan) << text;
    compile(reference, divided, {"--devices", "5", "--plan", plan});
  }
  static const TwoPlans& get() {
    static const TwoPlans plans;
    return plans;
  }
  json run(const std::string& folder, int steps, const Words& more) const {
    Words words = {"run",   folder, "--data",  reference.folder + "/data",
                   "--lr",  "0.01", "--steps", std::to_string(steps),
                   "--json"};
    words.insert(words.end(), more.begin(), more.end());
    return json::parse(graphpipe_output(words));
  }
};

// The files of a checkpoint have digests: a test that removes one takes it out of the record too.
void take_out_of_record(const std::string& step, const std::string& file) {
  std::istringstream lines(read_text(step + "checkpoint.txt"));
  std::string record;
  for (std::string line; std::getline(lines, line);)
    if (!line.ends_with(" " + file) && !line.starts_with("end ")) record += line + "\n";
  std::ofstream(step + "checkpoint.txt") << record << "end " << graphpipe::driver::sha256_of_text(record) << "\n";
}

}  // namespace

TEST_CASE("replicas that divide the optimizer's state train to the same bits in less memory") {
  const TwoPlans& plans = TwoPlans::get();
  const std::string all = plans.whole + ".weights", parts = plans.divided + ".weights";
  const json one = plans.run(plans.whole, 5, {"--save", all, "--clip-norm", "0.5"});
  const json other = plans.run(plans.divided, 5, {"--save", parts, "--clip-norm", "0.5"});
  CHECK(one["losses"] == other["losses"]);
  CHECK(same_bytes(all, parts));
  const json planned = json::parse(graphpipe_output({"simulate", plans.divided, "--json"}));
  for (size_t device = 0; device < 5; ++device) {
    CAPTURE(device);
    const auto measured = other["peak_bytes"][device].get<double>();
    CHECK(measured < 0.85 * one["peak_bytes"][device].get<double>());
    CHECK(measured <= 1.05 * planned["peak_bytes"][device].get<double>());
  }
  const json report = json::parse(graphpipe_output({"verify", plans.divided, "--data", plans.reference.folder + "/data",
                                                    "--steps", "3", "--lr", "0.01", "--accumulate", "2", "--json"}));
  CHECK(report["bitwise"] == true);
}

TEST_CASE("a training goes on with a divided state from a whole one, and the other way round") {
  const TwoPlans& plans = TwoPlans::get();
  const json through = plans.run(plans.whole, 6, {});
  for (const auto& [first, second] : {std::pair(plans.whole, plans.divided), std::pair(plans.divided, plans.whole),
                                      std::pair(plans.divided, plans.divided)}) {
    const std::string checkpoints = plans.divided + ".checkpoints";
    std::filesystem::remove_all(checkpoints);
    plans.run(first, 3, {"--checkpoint", checkpoints, "--checkpoint-every", "3"});
    const json rest = plans.run(second, 6, {"--resume", checkpoints});
    CAPTURE(first);
    CAPTURE(second);
    CHECK(rest["losses"] == json(std::vector<json>(through["losses"].begin() + 3, through["losses"].end())));
  }
}

TEST_CASE("a checkpoint that lacks all optimizer state is refused by every plan") {
  const TwoPlans& plans = TwoPlans::get();
  const std::string checkpoints = plans.whole + ".checkpoints", step = checkpoints + "/step-2/";
  std::filesystem::remove_all(checkpoints);
  plans.run(plans.whole, 2, {"--checkpoint", checkpoints});
  for (const char* file : {"stage0.optimizer.safetensors", "stage1.optimizer.safetensors"}) {
    REQUIRE(std::filesystem::remove(step + file));
    take_out_of_record(step, file);
  }
  for (const std::string& folder : {plans.whole, plans.divided}) {
    CAPTURE(folder);
    const std::string refusal = graphpipe_output({"run", folder, "--data", plans.reference.folder + "/data", "--steps",
                                                  "4", "--lr", "0.01", "--resume", checkpoints, "--json", "--quiet"},
                                                 3);
    CHECK(refusal.find("has no optimizer state there, and no other parameter has: a part is missing") !=
          std::string::npos);
  }
}

TEST_CASE("a checkpoint that lacks all optimizer state of a stage is refused by the plan that wrote it") {
  const TwoPlans& plans = TwoPlans::get();
  const std::string checkpoints = plans.whole + ".checkpoints", step = checkpoints + "/step-2/";
  for (const char* stage : {"stage0", "stage1"}) {
    CAPTURE(stage);
    std::filesystem::remove_all(checkpoints);
    plans.run(plans.whole, 2, {"--checkpoint", checkpoints});
    const std::string file = std::string(stage) + ".optimizer.safetensors";
    REQUIRE(std::filesystem::remove(step + file));
    take_out_of_record(step, file);
    const std::string refusal =
        graphpipe_output({"run", plans.whole, "--data", plans.reference.folder + "/data", "--steps", "4", "--lr",
                          "0.01", "--resume", checkpoints, "--json", "--quiet"},
                         3);
    CHECK(refusal.find("has no optimizer state there, and other parameters have: a part is missing") !=
          std::string::npos);
  }
}

TEST_CASE("a checkpoint that lacks a part of a divided state is refused by every plan") {
  const TwoPlans& plans = TwoPlans::get();
  const std::string checkpoints = plans.divided + ".checkpoints", step = checkpoints + "/step-2/";
  for (const char* part : {"stage0", "stage0.replica1", "stage1.replica1", "stage1.replica2"}) {
    CAPTURE(part);
    std::filesystem::remove_all(checkpoints);
    plans.run(plans.divided, 2, {"--checkpoint", checkpoints});
    const std::string file = std::string(part) + ".optimizer.safetensors";
    REQUIRE(std::filesystem::remove(step + file));
    const Words resume = {
        "--data", plans.reference.folder + "/data", "--steps", "4", "--lr", "0.01", "--resume", checkpoints, "--json",
        "--quiet"};
    const auto refusal = [&](const std::string& folder) {
      Words words = {"run", folder};
      words.insert(words.end(), resume.begin(), resume.end());
      return graphpipe_output(words, 3);
    };
    CHECK(refusal(plans.divided).find(file) != std::string::npos);
    take_out_of_record(step, file);
    for (const std::string& folder : {plans.divided, plans.whole})
      CHECK(refusal(folder).find("parts of it are missing") != std::string::npos);
  }
}

TEST_CASE("moving averages of a divided state are those of a whole one") {
  const TwoPlans& plans = TwoPlans::get();
  const std::string all = plans.whole + ".averages", parts = plans.divided + ".averages";
  plans.run(plans.whole, 4, {"--ema", "0.5", "--save-ema", all});
  plans.run(plans.divided, 4, {"--ema", "0.5", "--save-ema", parts});
  CHECK(same_bytes(all, parts));
}

namespace {

/// Numbers of this shape in place of an input of the model.
void give_weight(graphpipe_onnx::GraphProto& graph, const std::string& name, const std::vector<int>& shape) {
  graphpipe_onnx::TensorProto& tensor = *graph.add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(graphpipe_onnx::TensorProto::FLOAT);
  for (const int size : shape) tensor.add_dims(size);
  const int elements = std::accumulate(shape.begin(), shape.end(), 1, std::multiplies<>());
  for (int i = 0; i < elements; ++i) tensor.add_float_data(0.1F * std::sin(static_cast<float>(i + 1)));
  auto& inputs = *graph.mutable_input();
  inputs.erase(std::ranges::find(inputs, name, &graphpipe_onnx::ValueInfoProto::name));
}

}  // namespace

// Those of the example models are all so small that they share messages.
TEST_CASE(
    "a weight that travels alone comes from replicas whose parts differ in size, and one without axes has an owner") {
  const std::string folder = work_folder("state_large"), whole = folder + ".whole", model = folder + ".onnx";
  graphpipe_onnx::ModelProto wide = graphpipe::testing::parse_onnx_text(
      "g (float[N,8] x, float[8,1000] w, float[1000,4] v, float s) => (float[N,4] y) "
      "{ h = MatMul(x, w) r = Relu(h) p = MatMul(r, v) y = Mul(p, s) }");
  give_weight(*wide.mutable_graph(), "w", {8, 1000});
  give_weight(*wide.mutable_graph(), "v", {1000, 4});
  give_weight(*wide.mutable_graph(), "s", {});
  std::filesystem::create_directories(std::filesystem::path(model).parent_path());
  std::ofstream(model, std::ios::binary) << wide.SerializeAsString();
  const std::string decisions = folder + ".parameters";
  std::ofstream(decisions) << "s train\n";  // a number of a file does not by itself
  const auto compile_to = [&](const std::string& out, const Words& more) {
    Words words = {"compile",     model,          "--parameters", decisions, "--batch",   "6",
                   "--loss",      "mse:y,target", "--devices",    "3",       "--planner", "data-parallel",
                   "--optimizer", "adamw",        "-o",           out,       "--quiet"};
    words.insert(words.end(), more.begin(), more.end());
    graphpipe_output(words);
  };
  compile_to(folder, {"--shard-optimizer"});
  const json report = json::parse(graphpipe_output({"verify", folder, "--steps", "3", "--lr", "0.01", "--json"}));
  CHECK(report["bitwise"] == true);
  CHECK(report["by_tolerance"] == true);

  compile_to(whole, {});
  const auto run = [&](const std::string& out, const char* steps, const Words& more) {
    Words words = {"run", out, "--steps", steps, "--lr", "0.01", "--json", "--quiet"};
    words.insert(words.end(), more.begin(), more.end());
    return json::parse(graphpipe_output(words));
  };
  const json through = run(folder, "4", {});
  for (const auto& [first, second] : {std::pair(folder, whole), std::pair(whole, folder)}) {
    const std::string checkpoints = folder + ".checkpoints";
    std::filesystem::remove_all(checkpoints);
    run(first, "2", {"--checkpoint", checkpoints});
    CHECK(run(second, "4", {"--resume", checkpoints})["losses"] ==
          json(std::vector<json>(through["losses"].begin() + 2, through["losses"].end())));
  }
}

TEST_CASE("replicas in two directions divide the state") {
  const Reference reference = read_reference("gpt2_like");
  const std::string folder = work_folder("state_both_ways");
  compile(reference, folder,
          {"--devices", "2", "--policy", "chimera", "--micro-batch", "2", "--optimizer", "adamw", "--shard-optimizer"});
  const std::string checkpoints = folder + ".checkpoints";
  std::filesystem::remove_all(checkpoints);
  graphpipe_output({"run", folder, "--data", reference.folder + "/data", "--steps", "2", "--lr", "0.01", "--quiet",
                    "--checkpoint", checkpoints});
  for (const char* stage : {"0", "1"})
    CHECK(std::filesystem::exists(checkpoints + "/step-2/stage" + stage + ".replica1.optimizer.safetensors"));
  const json report = json::parse(graphpipe_output(
      {"verify", folder, "--data", reference.folder + "/data", "--steps", "3", "--lr", "0.01", "--json", "--quiet"}));
  CHECK(report["bitwise"] == true);
}

TEST_CASE("a training of 16-bit parameters goes on between two updates of a divided state") {
  const std::string model = GRAPHPIPE_SOURCE_DIR "/tests/data/bf16/model.onnx", folder = work_folder("state_bf16");
  graphpipe_output({"compile", model, "--batch", "8", "--loss", "mse:y,target", "--devices", "2", "--planner",
                    "data-parallel", "--optimizer", "adamw", "--shard-optimizer", "-o", folder, "--quiet"});
  const auto run = [&](const char* steps, const Words& more, int expected = 0) {
    Words words = {"run", folder, "--steps", steps, "--lr", "3e-4", "--quiet"};
    words.insert(words.end(), more.begin(), more.end());
    graphpipe_output(words, expected);
  };
  const std::string checkpoints = folder + ".checkpoints", whole = folder + ".whole", resumed = folder + ".resumed";
  std::filesystem::remove_all(checkpoints);
  run("12", {"--accumulate", "4", "--save", whole});
  run("6", {"--accumulate", "4", "--checkpoint", checkpoints});
  run("12", {"--accumulate", "4", "--resume", checkpoints, "--save", resumed});
  CHECK(same_bytes(whole, resumed));
  const Words ema = {"--ema", "0.9", "--save-ema", folder + ".averages"};
  run("2", ema, 2);
  run("2", {ema[0], ema[1], ema[2], ema[3], "--no-main-weights"});
}
