// Schedules as messages in the binary form, and as the lists of an answer. The JSON form: plan_test.cpp.

#include "files/schedule_file.h"

#include <doctest/doctest.h>

#include "tests/files/random_plan.h"

using namespace graphpipe;
using namespace graphpipe::files;

namespace {

ScheduleFile random_file(uint64_t seed) {
  std::mt19937_64 random(seed);
  return {.plan_digest = seed % 2 == 0 ? "" : std::string(64, 'a'), .schedule = tests::random_schedule(random)};
}

}  // namespace

TEST_CASE("the binary form gives the same schedule back, in fewer bytes than the JSON form") {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    CAPTURE(seed);
    const ScheduleFile file = random_file(seed);
    const std::string bytes = print_schedule_binary(file);
    CHECK(is_schedule_binary(bytes));
    CHECK_FALSE(is_schedule_binary(print_schedule_file(file)));
    CHECK(bytes.size() < print_schedule_file(file).size());
    const auto read = parse_schedule_binary(bytes);
    REQUIRE(read.ok());
    CHECK(*read == file);
  }
}

TEST_CASE("bytes that are cut, changed or of another kind are refused") {
  const std::string bytes = print_schedule_binary(random_file(3));
  const ScheduleFile whole = *parse_schedule_binary(bytes);
  for (size_t length = 0; length < bytes.size(); ++length) {
    const auto read = parse_schedule_binary(bytes.substr(0, length));
    CHECK_FALSE((read.ok() && *read == whole));
  }
  const auto message = [](const std::string& changed) {
    const auto read = parse_schedule_binary(changed);
    REQUIRE_FALSE(read.ok());
    return read.problems().front().message;
  };
  CHECK(message("").starts_with("schema"));
  std::string newer = bytes;
  newer[newer.find("/1") + 1] = '2';
  CHECK(message(newer).find("newer version") != std::string::npos);
  // Field 15, a varint.
  CHECK(message(bytes + std::string("\x78\x01", 2)).find("does not have") != std::string::npos);
  CHECK(message("\x0a\xff").find("no graphpipe.schedule message") != std::string::npos);
}

TEST_CASE("the lists of an answer are a schedule; what is no action is named") {
  const auto read = parse_schedule_lists(
      R"--({"policy": "a", "programs": [["0F[0,1)s0", "0B[0,1)s0"], []], "slots": [1], "makespan": 3})--");
  REQUIRE(read.ok());
  CHECK(read->policy == "a");
  REQUIRE(read->programs.size() == 2);
  CHECK(ir::print_action(read->programs[0].actions[1]) == "0B[0,1)s0");
  CHECK(read->slots.size() == 1);
  const auto bare = parse_schedule_lists(R"--({"programs": [["0F[0,1)s0", "0B[0,1)s0"]]})--");
  REQUIRE(bare.ok());
  CHECK(bare->slots.empty());
  for (const ir::Action& action : bare->programs[0].actions) CHECK(action.slot == -1);
  CHECK(is_schedule_lists(R"--({"policy": "a", "programs": []})--"));
  CHECK_FALSE(is_schedule_lists(print_schedule_file(random_file(0))));
  const auto message = [](const char* text) {
    const auto refused = parse_schedule_lists(text);
    REQUIRE_FALSE(refused.ok());
    return refused.problems().front().message;
  };
  CHECK(message("[]").find("JSON object") != std::string::npos);
  CHECK(message(R"--({"programs": 3})--").starts_with("programs:"));
  CHECK(message(R"--({"programs": [["0F[0,1)", "0Q"]]})--").starts_with("programs[0][1]"));
  CHECK(message(R"--({"programs": [["0F[0,1)", 7]]})--").starts_with("programs[0][1]"));
  CHECK(message(R"--({"programs": [], "slots": [-1]})--").starts_with("slots"));
}
