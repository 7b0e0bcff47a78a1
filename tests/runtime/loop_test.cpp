#include "runtime/training/loop.h"

#include <doctest/doctest.h>

#include <string>

namespace graphpipe::runtime {
namespace {

/// Writes down what it is told, and asks at the steps that it is given.
class Witness : public StepObserver {
 public:
  explicit Witness(std::string& story, Request request = {}, int64_t asks_after = -1)
      : story_(story), request_(request), asks_after_(asks_after) {}
  void before_step(int64_t step) override { story_ += "before " + std::to_string(step) + ", "; }
  Request after_step(const StepFacts& facts) override {
    story_ += "after " + std::to_string(facts.step);
    if (facts.granted.checkpoint) story_ += " checkpoint";
    if (facts.granted.end) story_ += " end";
    if (facts.is_last) story_ += " last";
    story_ += ", ";
    return facts.step == asks_after_ ? request_ : Request{};
  }
  bool may_ask() const override { return request_ != Request{}; }
  std::vector<std::byte> tell() override { return {std::byte{7}}; }
  void hear(std::span<const std::vector<std::byte>> of_ranks) override {
    for (const std::vector<std::byte>& bytes : of_ranks) CHECK((bytes == std::vector{std::byte{7}}));
    ++heard;
  }
  void at_end() override { story_ += "at end"; }
  int heard = 0;

 private:
  std::string& story_;
  Request request_;
  int64_t asks_after_;
};

std::vector<StepOutcome> outcomes_of(int64_t first, int64_t last) {
  std::vector<StepOutcome> outcomes;
  for (int64_t step = first; step < last; ++step)
    outcomes.push_back({.losses = {{4, static_cast<double>(step)}, {0, 0.5}}, .gradient_norm = 2});
  return outcomes;
}

int64_t next_multiple_of_three(int64_t step) { return (step / 3 + 1) * 3; }

}  // namespace

TEST_CASE("the loop runs a range of steps and tells its observers of each") {
  std::string story;
  Witness witness(story);
  CHECK(run_steps({.observers = {&witness}, .run_steps = outcomes_of}, 3, 5) == 5);
  CHECK(story == "before 3, after 3, before 4, after 4 last, at end");
  CHECK(witness.heard == 2);
}

TEST_CASE("steps between two drains are told of one by one, once all are there") {
  std::string story;
  Witness witness(story, {.checkpoint = true}, 1);
  CHECK(run_steps({.observers = {&witness}, .run_steps = outcomes_of, .next_drain = next_multiple_of_three}, 1, 8) ==
        8);
  CHECK(story ==
        "before 1, after 1, after 2, before 3, after 3, after 4, after 5 checkpoint, before 6, after 6, after 7 last, "
        "at end");
  CHECK(witness.heard == 3);
}

TEST_CASE("a range without steps has an end all the same") {
  std::string story;
  Witness witness(story);
  CHECK(run_steps({.observers = {&witness}, .run_steps = outcomes_of}, 5, 5) == 5);
  CHECK(story == "at end");
}

TEST_CASE("what an observer asks for is granted to all after the next step") {
  std::string story, other;
  Witness asks(story, {.checkpoint = true}, 0);
  Witness looks(other);
  run_steps({.observers = {&asks, &looks}, .run_steps = outcomes_of}, 0, 3);
  CHECK(story == "before 0, after 0, before 1, after 1 checkpoint, before 2, after 2 last, at end");
  CHECK(other == story);
}

TEST_CASE("a run that is asked to end does so after the next step, which it knows to be the last") {
  std::string story;
  Witness asks(story, {.end = true}, 1);
  CHECK(run_steps({.observers = {&asks}, .run_steps = outcomes_of}, 0, 9) == 3);
  CHECK(story == "before 0, after 0, before 1, after 1, before 2, after 2 end last, at end");
}

TEST_CASE("the loss of a step is the sum of its shares, known to rank 0") {
  struct Facts : StepObserver {
    Request after_step(const StepFacts& facts) override {
      losses.push_back(facts.loss.value());
      CHECK(facts.gradient_norm == 2);
      return {};
    }
    std::vector<double> losses;
  } facts;
  run_steps({.observers = {&facts}, .run_steps = outcomes_of}, 0, 2);
  CHECK(facts.losses == std::vector<double>{0.5, 1.5});
  run_steps({.observers = {&facts}, .run_steps = outcomes_of, .next_drain = next_multiple_of_three}, 2, 5);
  CHECK(facts.losses == std::vector<double>{0.5, 1.5, 2.5, 3.5, 4.5});
}

}  // namespace graphpipe::runtime
