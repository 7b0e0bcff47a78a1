// Ranks that wait for ranks that work are told from waits that do not end.

#include "runtime/executor/stall_watch.h"

#include <doctest/doctest.h>

#include <chrono>
#include <limits>
#include <thread>

using namespace graphpipe::runtime;

namespace {

constexpr double kTimeOut = 0.04;

// What the lookups say: `count` grows with each, so it stands for what changes with time.
using Script = std::function<std::optional<Activity>(int32_t rank, int64_t count)>;

// Rank 0 of four waits for rank 1, for several time-outs at most.
std::optional<Stall> watch_script(const Script& script, double seconds = kTimeOut) {
  int64_t count = 0;
  StallWatch watch(seconds, 0, 4, [&](int32_t rank) { return script(rank, ++count); });
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(6 * kTimeOut);
  while (std::chrono::steady_clock::now() < end) {
    if (std::optional<Stall> stall = watch.look(1)) return stall;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return std::nullopt;
}

Activity waiting(int32_t peer, int64_t beats) { return {.op = 0, .stage = 0, .waits_for = peer, .beats = beats}; }
Activity computing(int64_t sample) { return {.op = 0, .stage = 0, .range = {sample, sample + 1}}; }

}  // namespace

TEST_CASE("a peer that goes on to other samples is no stall, one that does not is") {
  CHECK_FALSE(watch_script([](int32_t, int64_t count) { return computing(count); }));
  const std::optional<Stall> stall = watch_script([](int32_t, int64_t) { return computing(7); });
  REQUIRE(stall);
  CHECK(stall->culprit == 1);
  REQUIRE(stall->last);
  CHECK(stall->last->range.first == 7);
}

TEST_CASE("a peer that waits is not to blame: the rank at the end of the chain is") {
  const auto chain = [](bool end_works) {
    return watch_script([=](int32_t rank, int64_t count) {
      return rank < 3 ? waiting(rank + 1, count) : computing(end_works ? count : 7);
    });
  };
  CHECK_FALSE(chain(true));
  const std::optional<Stall> stall = chain(false);
  REQUIRE(stall);
  CHECK(stall->culprit == 3);
}

TEST_CASE("a rank that stands still in its wait was stopped") {
  const std::optional<Stall> stall =
      watch_script([](int32_t rank, int64_t count) { return waiting((rank + 1) % 4, rank == 2 ? 5 : count); });
  REQUIRE(stall);
  CHECK(stall->culprit == 2);
}

TEST_CASE("a rank that waits for its disk is no stall as long as it says so") {
  const auto writes = [](bool beats) {
    return watch_script([=](int32_t rank, int64_t count) {
      return rank == 1 ? waiting(2, count) : waiting(rank == 2 ? 2 : 1, rank != 2 || beats ? count : 5);
    });
  };
  CHECK_FALSE(writes(true));
  const std::optional<Stall> stopped = writes(false);
  REQUIRE(stopped);
  CHECK(stopped->culprit == 2);
}

TEST_CASE("deadlocked ranks are stuck only if nobody beside it goes on") {
  const auto cycle = [](const Activity& first, const Activity& second) {
    bool odd = false;
    return watch_script([=](int32_t rank, int64_t count) mutable {
      if (rank < 2) return waiting(1 - rank, count);
      if (rank == 2) odd = !odd;
      return odd ? first : second;
    });
  };
  CHECK_FALSE(cycle(computing(1), computing(2)));
  const std::optional<Stall> busy = cycle(computing(1), computing(1));
  REQUIRE(busy);
  CHECK(busy->culprit == 2);
  const std::optional<Stall> all = watch_script([](int32_t rank, int64_t count) { return waiting(rank ^ 1, count); });
  REQUIRE(all);
  CHECK(all->culprit == 0);
}

TEST_CASE("of a rank that tells nothing, time is all there is") {
  const std::optional<Stall> stall = watch_script([](int32_t, int64_t) { return std::nullopt; });
  REQUIRE(stall);
  CHECK(stall->culprit == 1);
  CHECK_FALSE(stall->last);
}

TEST_CASE("an infinite time-out is never over") {
  CHECK_FALSE(watch_script([](int32_t, int64_t) { return computing(7); }, std::numeric_limits<double>::infinity()));
}
