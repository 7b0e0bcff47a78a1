#include "runtime/training/loop.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "runtime/collectives/message_parts.h"
#include "runtime/error.h"

namespace graphpipe::runtime {
namespace {

using Bytes = std::vector<std::byte>;

std::byte to_byte(Request request) { return std::byte((request.checkpoint ? 1 : 0) | (request.end ? 2 : 0)); }
Request from_byte(std::byte bits) {
  return {.checkpoint = (bits & std::byte{1}) != std::byte{0}, .end = (bits & std::byte{2}) != std::byte{0}};
}

/// What a rank says at a drain: its requests, its losses step by step, and the data of its observers.
struct Said {
  Request asked;
  std::vector<std::vector<LossShare>> losses;
  std::vector<Bytes> told;
};

Bytes message_of(const Said& said) {
  Bytes message;
  add_part(message, {to_byte(said.asked)});
  for (const std::vector<LossShare>& losses : said.losses) add_part(message, to_bytes(losses));
  for (const Bytes& told : said.told) add_part(message, told);
  return message;
}

Said said_in(const Bytes& message, size_t steps, size_t observers) {
  std::optional<std::vector<Bytes>> parts = parts_of(message, 1 + steps + observers);
  if (!parts || parts->front().size() != 1)
    fail(Code::kPeerFailed, "a rank sent a malformed message at the end of a step", "run all ranks from one folder");
  Said said{.asked = from_byte(parts->front().front())};
  for (size_t i = 0; i < steps; ++i) said.losses.push_back(from_bytes<LossShare>((*parts)[1 + i]));
  for (size_t i = 0; i < observers; ++i) said.told.push_back(std::move((*parts)[1 + steps + i]));
  return said;
}

StepFacts facts_of(int64_t step, const StepOutcome& outcome) {
  return {.step = step,
          .drains = false,
          .samples = outcome.samples,
          .gradient_norm = outcome.gradient_norm,
          .skipped = outcome.skipped,
          .loss_scale = outcome.loss_scale,
          .overflow = outcome.overflow};
}

using Clock = std::chrono::steady_clock;

class Loop {
 public:
  explicit Loop(const LoopSetup& setup)
      : setup_(setup),
        answers_(std::ranges::any_of(setup.observers, [](const StepObserver* each) { return each->may_ask(); })) {}

  int64_t run(int64_t first, int64_t last);

 private:
  int64_t run_to_end(int64_t first, int64_t last);
  std::vector<StepFacts> run_to_drain(int64_t first, int64_t last, Clock::time_point start);
  void exchange(const std::vector<StepOutcome>& outcomes, std::vector<StepFacts>& facts);
  void hear(std::vector<Said> all, std::vector<StepFacts>& facts);
  void take_answer();
  void give_answer();

  const LoopSetup& setup_;
  const bool answers_;
  Request asked_;     // by this rank, since its last message; on rank 0 by all ranks
  Request answered_;  // after the previous drain
  PendingBroadcast answer_;
};

int64_t Loop::run(int64_t first, int64_t last) {
  try {
    return run_to_end(first, last);
  } catch (...) {
    for (StepObserver* observer : setup_.observers) observer->at_failure();
    throw;
  }
}

int64_t Loop::run_to_end(int64_t first, int64_t last) {
  int64_t step = first;
  for (bool ended = first >= last; !ended;) {
    const Clock::time_point start = Clock::now();  // waiting for data is part of the step
    if (step > first && setup_.has_data && !setup_.has_data(step)) {
      take_answer();
      break;
    }
    for (StepObserver* observer : setup_.observers) observer->before_step(step);
    const int64_t drain = setup_.next_drain ? std::min(last, setup_.next_drain(step)) : step + 1;
    std::vector<StepFacts> steps = run_to_drain(step, drain, start);
    take_answer();
    steps.back().drains = true;
    steps.back().granted = std::exchange(answered_, {});
    ended = steps.back().is_last = steps.back().granted.end || drain >= last;
    for (const StepFacts& facts : steps)
      for (StepObserver* observer : setup_.observers) asked_ = asked_ | observer->after_step(facts);
    if (!ended) give_answer();
    step = drain;
  }
  for (StepObserver* observer : setup_.observers) observer->at_end();
  return step;
}

std::vector<StepFacts> Loop::run_to_drain(int64_t first, int64_t last, Clock::time_point start) {
  const std::vector<StepOutcome> outcomes = setup_.run_steps(first, last);
  std::vector<StepFacts> steps;
  for (const StepOutcome& outcome : outcomes) steps.push_back(facts_of(first + std::ssize(steps), outcome));
  exchange(outcomes, steps);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  for (StepFacts& facts : steps) facts.seconds = seconds / static_cast<double>(steps.size());
  return steps;
}

void Loop::exchange(const std::vector<StepOutcome>& outcomes, std::vector<StepFacts>& facts) {
  Said own{.asked = asked_};
  for (const StepOutcome& outcome : outcomes) own.losses.push_back(outcome.losses);
  for (StepObserver* observer : setup_.observers) own.told.push_back(observer->tell());
  if (setup_.rank != 0) {
    asked_ = {};
    if (setup_.gather != nullptr) setup_.gather->collect(message_of(own));
    return;
  }
  // What rank 0 says itself takes no message.
  std::vector<Said> all;
  all.push_back(std::move(own));
  const std::vector<Bytes> messages = setup_.gather == nullptr ? std::vector<Bytes>() : setup_.gather->collect({});
  for (size_t rank = 1; rank < messages.size(); ++rank)
    all.push_back(said_in(messages[rank], facts.size(), setup_.observers.size()));
  hear(std::move(all), facts);
}

void Loop::hear(std::vector<Said> all, std::vector<StepFacts>& facts) {
  for (const Said& said : all) asked_ = asked_ | said.asked;
  for (size_t i = 0; i < facts.size(); ++i) {
    std::vector<LossShare> shares;
    for (const Said& said : all) shares.insert(shares.end(), said.losses[i].begin(), said.losses[i].end());
    if (!shares.empty()) facts[i].loss = total_loss(std::move(shares));
  }
  for (size_t i = 0; i < setup_.observers.size(); ++i) {
    std::vector<Bytes> told;
    for (Said& said : all) told.push_back(std::move(said.told[i]));
    setup_.observers[i]->hear(told);
  }
}

// Receives what rank 0 answered after the previous drain.
void Loop::take_answer() {
  if (!answer_.begun) return;
  const Bytes answer = setup_.gather->end_broadcast(answer_);
  if (answer.size() != 1) fail(Code::kPeerFailed, "rank 0 sent a malformed answer", "run all ranks from one folder");
  answered_ = from_byte(answer.front());
}

void Loop::give_answer() {
  if (!answers_) return;
  if (setup_.gather == nullptr) {
    answered_ = std::exchange(asked_, {});
    return;
  }
  setup_.gather->begin_broadcast(answer_, {to_byte(asked_)});
  if (setup_.rank == 0) asked_ = {};
}

}  // namespace

int64_t run_steps(const LoopSetup& setup, int64_t first, int64_t last) { return Loop(setup).run(first, last); }

}  // namespace graphpipe::runtime
