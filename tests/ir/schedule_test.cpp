#include "ir/schedule.h"

#include <doctest/doctest.h>

#include <random>

using namespace graphpipe;
using namespace graphpipe::ir;

namespace {

Action random_action(std::mt19937_64& random) {
  const auto small = [&](int64_t limit) { return static_cast<int32_t>(random() % static_cast<uint64_t>(limit)); };
  Action action;
  action.op = static_cast<ActionOp>(small(wire::kActionOpCount));
  action.stream = small(4) == 0 ? static_cast<Stream>(small(3)) : stream_of(action.op);
  action.stage = small(100);
  action.replica = small(3);
  action.range.first = small(1000);
  action.range.last = action.range.first + small(9);
  action.edge = small(5) - 1;
  action.peer_replica = small(3) - 1;
  action.slot = small(4) - 1;
  action.version = small(3);
  action.overlaps_next = small(4) == 0;
  return action;
}

}  // namespace

TEST_CASE("a schedule's text parses back into the same schedule") {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    Schedule schedule;
    schedule.policy = seed % 3 == 0 ? "" : "zb-1p";
    for (uint64_t s = random() % 4; s > 0; --s) schedule.slots.push_back(static_cast<int>(random() % 5));
    for (size_t d = 0; d < random() % 4; ++d) {
      schedule.programs.push_back({DeviceId(d * 3), {}});
      for (uint64_t a = random() % 20; a > 0; --a) schedule.programs.back().actions.push_back(random_action(random));
    }
    if (seed % 2 == 0)
      for (size_t p = 0; p < schedule.programs.size(); ++p)
        schedule.starts.push_back(Ticks(static_cast<int64_t>(random() % 5'000'000)));
    const auto parsed = parse_schedule(print_schedule(schedule));
    REQUIRE(parsed.ok());
    CHECK(*parsed == schedule);
  }
}

TEST_CASE("actions read as they are written") {
  Action send;
  send.op = ActionOp::kSendForward;
  send.stream = Stream::kCommunication;
  send.stage = 0;
  send.range = {0, 4};
  send.edge = 3;
  CHECK(print_action(send) == "0SEND_F[0,4)e3");
  send.replica = 1;
  send.peer_replica = 0;
  send.slot = 2;
  CHECK(print_action(send) == "0r1SEND_F[0,4)e3p0s2");
  Action pair;
  pair.op = ActionOp::kForward;
  pair.stage = 3;
  pair.range = {0, 4};
  pair.overlaps_next = true;
  CHECK(print_action(pair) == "3F[0,4)o");
}

TEST_CASE("malformed schedules are refused with their line") {
  for (const char* text : {"device 0: 2F", "device 0: 2F[0,4", "device 0: F[0,4)", "device 0: 2X[0,4)", "device x:",
                           "device 0", "slots a", "slots -1", "hello", "device 0: 2F[0,99999999999999999999)",
                           "device 0: 2F[0,4)z", "device 0: 2F[0,4)c7", "device 99999999999:"}) {
    CAPTURE(text);
    const auto parsed = parse_schedule(std::string("schedule x\n") + text);
    REQUIRE(!parsed.ok());
    CHECK(parsed.problems().front().message.find("line 2") == 0);
  }
}
