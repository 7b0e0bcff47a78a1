// Orders that somebody wrote, in the place of a policy (plan --order), and policies that order chains only.

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "tests/driver/ask.h"

using namespace graphpipe::tests;

namespace {

// Two stages on two devices, two micro-batches of four samples.
nlohmann::json plan_ordered(const std::string& file, const std::string& text, int code, std::string& error) {
  std::ofstream(file) << text;
  const Answer answer = ask(gpt2("plan", {"--cluster", "default", "--devices", "2", "--planner", "sequential",
                                          "--stages", "2", "--batch", "8", "--micro-batch", "4", "--order", file}));
  CHECK(answer.code == code);
  error = answer.err;
  return code == 0 ? answer.object() : nlohmann::json();
}

}  // namespace

TEST_CASE("an order of one's own takes the policy's place: messages, slots and updates are added to it") {
  const std::string file = (std::filesystem::temp_directory_path() / "graphpipe-order.csv").string();
  std::string error;
  const auto step = [&](const std::string& order) {
    return plan_ordered(file, order, 0, error)["simulated_step"].get<double>();
  };
  const auto step_of = [&](const std::string& policy) {
    return ask(gpt2("plan", {"--cluster", "default", "--devices", "2", "--planner", "sequential", "--stages", "2",
                             "--batch", "8", "--micro-batch", "4", "--policy", policy}))
        .object()["simulated_step"]
        .get<double>();
  };
  CHECK(step("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n") == step_of("1f1b"));
  CHECK(step("0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n") == step_of("gpipe"));
  CHECK(step("0F0,0B0,0F1,0B1\n1F0,1B0,1F1,1B1\n") > step_of("1f1b"));
  plan_ordered(file, "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1,1F2\n", 3, error);
  CHECK(holds(error, "has no micro-batch 2 of 2"));
  plan_ordered(file, "1F0,1F1,1B0,1B1\n0F0,0B0,0F1,0B1\n", 3, error);
  CHECK(holds(error, "stage 1 is not on this device"));
  plan_ordered(file, "0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n", 3, error);
  CHECK(holds(error, file));
  std::filesystem::remove(file);
}

TEST_CASE("an order is read in every form that `schedule` writes") {
  const auto words = [](std::vector<std::string> more) {
    more.insert(more.end(), {"--cluster", "default", "--devices", "2", "--planner", "sequential", "--stages", "2",
                             "--batch", "4", "--micro-batch", "1"});
    return gpt2("plan", more);
  };
  const auto step = [](const Answer& answer) {
    CAPTURE(answer.err);
    REQUIRE(answer.code == 0);
    return answer.object()["simulated_step"].get<double>();
  };
  const std::string file = (std::filesystem::temp_directory_path() / "graphpipe-order-form").string();
  for (const char* policy : {"gpipe", "1f1b"})
    for (const char* format : {"csv", "csv-comms", "ir", "proto", "pb"}) {
      CAPTURE(policy);
      CAPTURE(format);
      REQUIRE(ask({"schedule", "--policy", policy, "--ranks", "2", "--micro-batches", "4", "--format", format, "-o",
                   file, "-q"})
                  .code == 0);
      CHECK(step(ask(words({"--order", file}))) == step(ask(words({"--policy", policy}))));
    }
  std::filesystem::remove(file);
}

TEST_CASE("the stages of a profile are executed as a chain where the policy orders nothing else") {
  const Answer answer =
      ask({"plan", "--profile", data_path("piper/bert32a100.json"), "--profile-format", "piper", "--devices", "4",
           "--planner", "graphpipe", "--stages", "4", "--no-replication", "--policy", "interleaved", "--json", "-q"});
  REQUIRE(answer.code == 0);
  CHECK(answer.object()["execute"] == "chain");
  CHECK(answer.object()["simulated_step"].is_number());
}
