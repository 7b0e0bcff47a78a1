// Laws of a step's arena: memory that lives at the same time does not overlap, a repeated step is served without the
// ordinary allocator, and whatever a step asks for instead, it gets.

#include "runtime/executor/step_arena.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/support/dice.h"

using namespace graphpipe;
using namespace graphpipe::runtime;

namespace {

using Source = StepArena::Source;

/// That of CPU tensors in LibTorch.
constexpr uintptr_t kTensorAlignment = 64;

/// A request, and after how many further requests it is released; -1: in the step after.
struct Ask {
  int64_t bytes = 0;
  int lasts = 0;
};

/// Tensors of a program that makes steps. Every one is filled with a number of its own, which is still there when it is
/// released.
class Steps {
 public:
  explicit Steps(StepArena& arena) : arena_(arena) {}
  ~Steps() {
    release_if([](const Held&) { return true; });
  }

  void run(const std::vector<Ask>& asks, StepKind kind = {nullptr, true}) {
    REQUIRE(arena_.begin_step(kind));
    ordinary_ = 0;
    for (size_t i = 0; i < asks.size(); ++i) {
      take(asks[i], static_cast<int>(i));
      release_if([&](const Held& held) {
        return held.until == static_cast<int>(i) || (held.until < 0 && held.made < step_ && i == asks.size() / 2);
      });
    }
    release_if([](const Held& held) { return held.until >= 0; });
    arena_.end_step();
    ++step_;
  }
  /// Requests of the last step that went to the ordinary allocator.
  int64_t ordinary() const { return ordinary_; }

 private:
  struct Held {
    std::byte* data = nullptr;
    int64_t bytes = 0;
    StepArena::Ticket ticket;
    std::unique_ptr<std::byte[]> own;
    std::byte mark{};
    int until = 0, made = 0;
  };

  void take(const Ask& ask, int index) {
    const StepArena::Grant grant = arena_.request(ask.bytes);
    Held held{.data = grant.data,
              .bytes = ask.bytes,
              .ticket = grant.ticket,
              .own = nullptr,
              .mark = static_cast<std::byte>(++marks_),
              .until = ask.lasts < 0 ? -1 : index + ask.lasts,
              .made = step_};
    CHECK((grant.source == Source::kArena) == (grant.data != nullptr));
    ordinary_ += grant.source == Source::kOrdinary ? 1 : 0;
    if (grant.data == nullptr) {
      held.own = std::make_unique<std::byte[]>(static_cast<size_t>(ask.bytes));
      held.data = held.own.get();
    } else {
      CHECK(arena_.owns(grant.data));
      CHECK(reinterpret_cast<uintptr_t>(grant.data) % kTensorAlignment == 0);
    }
    std::memset(held.data, static_cast<int>(held.mark), static_cast<size_t>(ask.bytes));
    held_.push_back(std::move(held));
  }

  template <typename Chosen>
  void release_if(const Chosen& chosen) {
    std::erase_if(held_, [&](const Held& held) {
      if (!chosen(held)) return false;
      CHECK(std::all_of(held.data, held.data + held.bytes, [&](std::byte value) { return value == held.mark; }));
      if (held.own != nullptr) arena_.note_release(held.ticket);
      else CHECK(arena_.release(held.data) == held.bytes);
      return true;
    });
  }

  StepArena& arena_;
  std::vector<Held> held_;
  int step_ = 0, marks_ = 0;
  int64_t ordinary_ = 0;
};

int between(tests::Dice& dice, int low, int high) {
  return low + static_cast<int>(dice.below(static_cast<size_t>(high - low + 1)));
}

std::vector<Ask> random_asks(tests::Dice& dice) {
  std::vector<Ask> asks(static_cast<size_t>(between(dice, 1, 40)));
  for (Ask& ask : asks) ask = {between(dice, 1, 3000), between(dice, -1, 8)};
  return asks;
}

}  // namespace

TEST_CASE("after two equal steps every request has a place or is kept apart, and none overlaps another") {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    CAPTURE(seed);
    tests::Dice dice(seed);
    StepArena arena;
    Steps steps(arena);
    const std::vector<Ask> asks = random_asks(dice);
    for (int i = 0; i < 2; ++i) steps.run(asks);
    CHECK(arena.numbers().steps == 0);
    for (int i = 0; i < 5; ++i) steps.run(asks);
    CHECK(steps.ordinary() == 0);
    CHECK(arena.numbers().steps == 5);
    CHECK(arena.numbers().fallback_steps == 0);
  }
}

TEST_CASE("steps that are not as before get their memory too, and the plan serves those that are") {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    CAPTURE(seed);
    tests::Dice dice(seed);
    StepArena arena;
    Steps steps(arena);
    const std::vector<Ask> asks = random_asks(dice);
    for (int i = 0; i < 20; ++i) {
      std::vector<Ask> now = asks;
      if (i > 2 && i % 3 == 0) now[dice.below(now.size())].bytes += 64;
      if (i > 2 && i % 5 == 0) now.pop_back();
      // The same sizes, living longer.
      if (i > 2 && i % 4 == 0)
        for (Ask& ask : now) ask.lasts = between(dice, -1, 20);
      steps.run(now);
    }
    for (int i = 0; i < 3; ++i) steps.run(asks);
    CHECK(steps.ordinary() == 0);
  }
}

TEST_CASE("a lifetime that grows moves its place") {
  StepArena arena;
  Steps steps(arena);
  for (int i = 0; i < 3; ++i) steps.run({{1000, 0}, {1000, 0}});
  CHECK(arena.numbers().bytes == 1000);
  steps.run({{1000, 1}, {1000, 0}});
  CHECK(steps.ordinary() == 1);
  CHECK(arena.numbers().fallback_steps == 1);
  steps.run({{1000, 1}, {1000, 0}});
  CHECK(steps.ordinary() == 0);
  CHECK(arena.numbers().bytes == 2024);
}

TEST_CASE("a program of several steps has its plan after its first time") {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    tests::Dice dice(seed);
    StepArena arena;
    Steps steps(arena);
    const std::vector<Ask> asks = random_asks(dice);
    const StepKind kind{.program = &dice, .updates = true, .steps = 4};
    steps.run(asks, kind);
    CHECK(arena.numbers().steps == 0);
    for (int i = 0; i < 2; ++i) steps.run(asks, kind);
    CHECK(arena.numbers().steps == 8);
    CHECK(steps.ordinary() == 0);
  }
}

TEST_CASE("each kind of step has its plan; one step at a time has the arena") {
  StepArena arena;
  Steps steps(arena);
  const int program = 0;
  for (int i = 0; i < 6; ++i) {
    steps.run({{100, 0}}, {&program, false});
    steps.run({{100, 0}, {5000, 0}}, {&program, true});
  }
  CHECK(steps.ordinary() == 0);
  CHECK(arena.numbers().steps == 8);
  CHECK(arena.numbers().fallback_steps == 0);
  REQUIRE(arena.begin_step({}));
  CHECK_FALSE(arena.begin_step({}));
  arena.end_step();
}
