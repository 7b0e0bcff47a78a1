#include "files/profile.h"

#include <doctest/doctest.h>

#include "files/schedule_file.h"
#include "tests/files/random_plan.h"

namespace graphpipe::files {
namespace {

TEST_CASE("a profile that is written reads back the same") {
  const ir::Profile profile{
      .model_digest = std::string(64, '0'),
      .threads = 2,
      .operators = {{.signature = ModelText("Conv f32[B,3]"), .samples = Samples(1), .forward = Seconds(1.0 / 3)},
                    {.signature = ModelText("Conv f32[B,3]"),
                     .samples = Samples(8),
                     .forward = Seconds(1),
                     .input_gradient = Seconds(2),
                     .weight_gradient = Seconds(0)}},
      .links = {{.level = 0, .latency = Seconds(1e-6), .bandwidth = BytesPerSecond(5e9)}},
      .runtime = {.step = Seconds(1e-5), .action = Seconds(2e-6), .message = Seconds(3e-6), .message_byte = 1e-10,
                  .update_tensor = Seconds(1e-6), .update_byte = 2e-10, .add_byte = 3e-10}};
  const Result<ir::Profile> again = parse_profile(print_profile(profile));
  REQUIRE(again.ok());
  CHECK(*again == profile);
}

TEST_CASE("bad measurements are refused with the path") {
  const auto refusal = [](std::string_view operators) {
    const Result<ir::Profile> profile = parse_profile(
        R"({"schema": "graphpipe.profile/1", "threads": 1, "operators": [)" + std::string(operators) + "]}");
    return profile.ok() ? std::string("fine") : profile.problems()[0].message;
  };
  CHECK(refusal(R"({"signature": "a", "samples": 1, "forward_seconds": 1})") == "fine");
  CHECK(refusal(R"({"signature": "a", "samples": 1, "forward_seconds": -1})").find("operators[0].forward_seconds") ==
        0);
  CHECK(refusal(R"({"signature": "a", "samples": 0})").find("operators[0].samples") == 0);
  CHECK(refusal(R"({"signature": "", "samples": 1})").find("operators[0].signature") == 0);
  CHECK(refusal(R"({"signature": "a", "samples": 1}, {"signature": "a", "samples": 1})").find("operators[1]:") == 0);
  CHECK(refusal(R"({"signature": "a", "samples": 1, "forward_ms": 1})").find("operators[0].forward_ms: unknown") == 0);
}

TEST_CASE("a schedule that is written reads back the same") {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const ScheduleFile file{.plan_digest = std::string(64, 'f'), .schedule = tests::random_schedule(random)};
    const Result<ScheduleFile> again = parse_schedule_file(print_schedule_file(file));
    REQUIRE(again.ok());
    CHECK(*again == file);
  }
}

TEST_CASE("bad actions are refused with the path") {
  const auto refusal = [](std::string_view action) {
    const Result<ScheduleFile> file =
        parse_schedule_file(R"({"schema": "graphpipe.schedule/1", "schedule": {"programs": [{"actions": [)" +
                            std::string(action) + "]}]}}");
    return file.ok() ? std::string("fine") : file.problems()[0].message;
  };
  CHECK(refusal(R"({"op": "F", "stage": 0, "last": 4})") == "fine");
  CHECK(refusal(R"({"op": "G"})") == "schedule.programs[0].actions[0].op: is no action: 'G'");
  CHECK(refusal(R"({"op": "F", "stage": -2})").find("schedule.programs[0].actions[0].stage") == 0);
  CHECK(refusal(R"({"op": "F", "first": 4, "last": 2})").find("schedule.programs[0].actions[0].last") == 0);
  CHECK(refusal(R"({"op": "F", "stream": "fast"})").find("schedule.programs[0].actions[0].stream") == 0);
}

}  // namespace
}  // namespace graphpipe::files
