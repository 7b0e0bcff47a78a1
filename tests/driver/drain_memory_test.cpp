// Asynchronous policies under a limit of memory: how often the pipeline drains, and what is said of it.

#include <doctest/doctest.h>

#include <span>
#include <sstream>
#include <vector>

#include "tests/driver/ask.h"
#include "tests/support/case_count.h"
#include "tests/support/onnx_text.h"

namespace graphpipe::tests {
namespace {

using graphpipe::testing::TemporaryFolder;

/// Ten layers of a mebibyte each, whose activations are small beside them.
void write_chain(const TemporaryFolder& folder) {
  constexpr int kLayers = 10, kWidth = 512;
  std::string body;
  for (int i = 0; i < kLayers; ++i)
    body += text("  m", i, " = MatMul(", i == 0 ? "x" : text("r", i - 1), ", w", i, ")\n  ",
                 i + 1 == kLayers ? "y" : text("r", i), " = Relu(m", i, ")\n");
  auto model = graphpipe::testing::parse_onnx_text(
      text("g (float[N,", kWidth, "] x) => (float[N,", kWidth, "] y) {\n", body, "}"));
  for (int i = 0; i < kLayers; ++i) {
    graphpipe_onnx::TensorProto& weight = *model.mutable_graph()->add_initializer();
    weight.set_name(text("w", i));
    weight.set_data_type(graphpipe_onnx::TensorProto::FLOAT);
    for (int axis = 0; axis < 2; ++axis) weight.add_dims(kWidth);
    weight.set_raw_data(std::string(sizeof(float) * kWidth * kWidth, '\0'));
  }
  folder.write("chain.onnx", model.SerializeAsString());
}

nlohmann::json plan_chain(const TemporaryFolder& folder, std::vector<std::string> flags) {
  std::vector<std::string> words{
      "plan",      folder / "chain.onnx", "--loss", "mse:y,t",     "--batch", "64",     "--policy",
      "pipedream", "--cluster",           "summit", "--optimizer", "adam",    "--json", "-q"};
  words.insert(words.end(), flags.begin(), flags.end());
  const Answer answer = ask(words);
  CAPTURE(answer.err);
  REQUIRE(answer.code == 0);
  return answer.object();
}

/// So many per cent of what the plan's fullest device needs.
std::string scarce_memory(const nlohmann::json& plan, int64_t percent) {
  int64_t peak = 0;
  for (const int64_t bytes : plan["peak_bytes"]) peak = std::max(peak, bytes);
  return text(peak * percent / 100);
}

TEST_CASE("a limit of memory makes an asynchronous pipeline drain as often as it must, and no more often") {
  const TemporaryFolder folder;
  write_chain(folder);
  const std::vector<std::string> flags{"--planner", "graphpipe", "--devices", "4"};
  const auto plan = [&](std::vector<std::string> more) {
    more.insert(more.end(), flags.begin(), flags.end());
    return plan_chain(folder, more);
  };
  const nlohmann::json free = plan({});
  CHECK(free["drain_every"] == 16);
  const std::string memory = scarce_memory(free, 80);
  const nlohmann::json limited = plan({"--memory", memory}), drained = plan({"--memory", memory, "--drain-every", "1"});
  CHECK(limited["drain_every"] > 1);
  CHECK(limited["drain_every"] < 16);
  CHECK(drained["drain_every"] == 1);
  CHECK(limited["simulated_step"].get<double>() < 0.7 * drained["simulated_step"].get<double>());
  const Answer words = ask({"plan", folder / "chain.onnx", "--loss", "mse:y,t", "--cluster", "summit", "--policy",
                            "pipedream", "--drain-every", "1", "--planner", "graphpipe"});
  CHECK(holds(words.out, "; the pipeline drains after every step\n"));
}

TEST_CASE("the search leaves room for the versions of weights that asynchronous stages hold") {
  const TemporaryFolder folder;
  write_chain(folder);
  const auto planned = [&](std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--devices", "4", "--planner", "graphpipe"});
    return plan_chain(folder, flags);
  };
  const nlohmann::json free = planned({});
  for (const int percent : {70, 75, 80}) {
    CAPTURE(percent);
    const std::string memory = scarce_memory(free, percent);
    const nlohmann::json plan = planned({"--memory", memory, "--drain-every", "16"});
    CHECK(plan["drain_every"] == 16);
    for (const int64_t bytes : plan["peak_bytes"]) CHECK(bytes <= std::stoll(memory));
  }
}

TEST_CASE("the memory that a refusal says is missing is enough, and half of it is not") {
  const TemporaryFolder folder;
  write_chain(folder);
  const auto planned = [&](int64_t memory) {
    return ask({"plan", folder / "chain.onnx", "--loss", "mse:y,t", "--batch", "64", "--cluster", "summit",
                "--optimizer", "adam", "--devices", "4", "--memory", std::to_string(memory), "-q"});
  };
  constexpr int64_t kMemory = 12'000'000;
  const Answer refused = planned(kMemory);
  REQUIRE(refused.code == 4);
  const std::string words = "the one that comes closest needs ";
  const size_t at = refused.err.find(words);
  REQUIRE(at != std::string::npos);
  double lacking = 0;
  std::string unit;
  std::istringstream(refused.err.substr(at + words.size())) >> lacking >> unit;
  const double bytes = lacking * (unit == "MiB" ? 1024 * 1024 : 1);
  CHECK(planned(kMemory + static_cast<int64_t>(1.01 * bytes)).code == 0);
  CHECK(planned(kMemory + static_cast<int64_t>(0.5 * bytes)).code == 4);
}

TEST_CASE("under a limit of memory what auto goes by is the step of the plan that it keeps") {
  const TemporaryFolder folder;
  write_chain(folder);
  const std::vector<const char*> limits = {"14000000", "18000000"};
  for (const char* memory : std::span(limits).first(case_count(1, limits.size()))) {
    CAPTURE(memory);
    const auto planned = [&](const char* planner) {
      return ask({"plan", folder / "chain.onnx", "--loss", "mse:y,t", "--batch", "64", "--cluster", "summit",
                  "--optimizer", "adam", "--devices", "4", "--memory", memory, "--planner", planner, "--json", "-q"})
          .object();
    };
    const nlohmann::json plan = planned("auto");
    CHECK(plan["objective"] == plan["simulated_step"]);
    CHECK(plan["simulated_step"] <= planned("graphpipe")["simulated_step"]);
    for (const int64_t bytes : plan["peak_bytes"]) CHECK(bytes <= std::stoll(memory));
  }
}

TEST_CASE("planners are compared at one number of batches between two drains") {
  const TemporaryFolder folder;
  write_chain(folder);
  const auto compare = [&](const char* policies) {
    return ask({"compare", folder / "chain.onnx", "--loss", "mse:y,t", "--batch", "64", "--cluster", "summit",
                "--devices", "3", "--planners", "sequential", "--policies", policies, "--drain-every", "2", "--json"});
  };
  const nlohmann::json plans = compare("kfkb,pipedream").object()["plans"];
  REQUIRE(plans.size() == 2);
  for (const nlohmann::json& row : plans) {
    std::vector<std::string> words{"plan",   folder / "chain.onnx", "--loss",     "mse:y,t",   "--batch",
                                   "64",     "--cluster",           "summit",     "--devices", "3",
                                   "--json", "--planner",           "sequential", "--policy",  row["policy"]};
    if (row["policy"] == "pipedream") words.insert(words.end(), {"--drain-every", "2"});
    CHECK(row["simulated_step"] == ask(words).object()["simulated_step"]);
  }
  const Answer drained = compare("kfkb");
  CHECK(drained.code == 2);
  CHECK(holds(drained.err, "all the policies drain after every batch"));
}

}  // namespace
}  // namespace graphpipe::tests
