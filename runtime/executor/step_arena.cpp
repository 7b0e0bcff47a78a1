#include "runtime/executor/step_arena.h"

#include <malloc.h>
#include <sys/resource.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "support/check.h"
#include "support/offsets.h"

namespace graphpipe::runtime {
namespace {

constexpr int64_t kOutlives = std::numeric_limits<int64_t>::max();
constexpr int64_t kOutside = -1;
/// Planning takes time: if the steps keep changing, the last plan stays.
constexpr int kMaxPlans = 16;
/// Lifetimes of messages differ from step to step: planning that takes longer than kShortSeconds is repeated only after
/// kPause times its duration, so that a run spends little of its time on it.
constexpr double kShortSeconds = 0.2, kPause = 50;

/// To ask for page faults takes as long as a small product: after the first steps only some steps ask.
constexpr int64_t kFirstSteps = 64, kStepsBetween = 16;

int64_t thread_page_faults() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt + usage.ru_majflt;
}

/// Memory that earlier steps have freed stays with the C library (allocator.cpp); the arena replaces it.
void give_back_free_memory() {
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
}

}  // namespace

bool StepArena::begin_step(StepKind kind) {
  const std::lock_guard lock(mutex_);
  if (kind_ != nullptr) return false;
  kind_ = &kinds_[kind];
  kind_steps_ = kind.steps;
  ++step_;
  seen_.clear();
  planned_ = !kind_->plan.requests.empty();
  diverged_ = false;
  collisions_ = fallbacks_ = 0;
  seen_.reserve(std::max(kind_->plan.requests.size(), kind_->last.size()));
  counts_faults_ = step_ <= kFirstSteps || step_ % kStepsBetween == 0;
  if (counts_faults_) faults_before_ = thread_page_faults();
  return true;
}

void StepArena::plan_bytes(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  numbers_.planned_bytes = bytes;
}

StepArena::Grant StepArena::request(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const size_t index = seen_.size();
  const Ticket ticket{step_, index};
  seen_.push_back({bytes, kOutlives});
  if (!planned_) return {.ticket = ticket};
  const Plan& plan = kind_->plan;
  diverged_ = diverged_ || index >= plan.requests.size() || plan.requests[index].bytes != bytes;
  if (!diverged_) {
    const int64_t offset = plan.offsets[index];
    if (offset == kOutside) return {.source = Source::kKept, .ticket = ticket};
    if (occupy(offset, bytes, ticket)) return {.source = Source::kArena, .data = memory_.at(offset)};
    ++collisions_;
  }
  ++fallbacks_;
  return {.ticket = ticket};
}

// Returns whether the range is free; if so, the request occupies it from here on.
bool StepArena::occupy(int64_t offset, int64_t bytes, Ticket ticket) {
  const auto above = std::ranges::lower_bound(live_, offset, {}, &Block::offset);
  if (above != live_.end() && above->offset < offset + bytes) return false;
  if (above != live_.begin() && std::prev(above)->offset + std::prev(above)->bytes > offset) return false;
  live_.insert(above, {offset, bytes, ticket});
  return true;
}

void StepArena::note_fallback() {
  const std::lock_guard lock(mutex_);
  ++fallbacks_;
}

void StepArena::note_release(Ticket ticket) {
  if (ticket.step == 0) return;
  const std::lock_guard lock(mutex_);
  end_request(ticket);
}

void StepArena::end_request(Ticket ticket) {
  if (kind_ != nullptr && ticket.step == step_) seen_[ticket.index].end = static_cast<int64_t>(seen_.size());
}

int64_t StepArena::release(const void* data) {
  const std::lock_guard lock(mutex_);
  const int64_t offset = memory_.offset_of(data);
  const auto block = std::ranges::lower_bound(live_, offset, {}, &Block::offset);
  GP_CHECK(block != live_.end() && block->offset == offset);
  const int64_t bytes = block->bytes;
  end_request(block->ticket);
  live_.erase(block);
  return bytes;
}

void StepArena::end_step() {
  const std::lock_guard lock(mutex_);
  Kind& kind = *kind_;
  const auto same = [&](const std::vector<Request>& others) {
    return std::ranges::equal(seen_, others, {}, &Request::bytes, &Request::bytes);
  };
  const bool as_planned = planned_ && same(kind.plan.requests);
  if (planned_) end_planned(as_planned, kind_steps_);
  std::vector<Request>& earlier = as_planned ? kind.plan.requests : kind.last;
  const bool repeats = !seen_.empty() && same(earlier);
  if (repeats)
    for (size_t i = 0; i < seen_.size(); ++i) earlier[i].end = std::max(earlier[i].end, seen_[i].end);
  else kind.last = seen_;
  const bool is_long = kind_steps_ > 1 && kind.plans == 0 && !seen_.empty();
  if (is_long) make_plan(kind, std::vector<Request>(kind.last));
  else if (repeats && (!as_planned || collisions_ > 0) && kind.plans < kMaxPlans && may_plan())
    make_plan(kind, std::vector<Request>(earlier));
  kind_ = nullptr;
}

void StepArena::end_planned(bool as_planned, int64_t steps) {
  numbers_.steps += steps;
  // A step that ends early made no request that the plan lacks, but it does not match the plan either.
  numbers_.fallback_steps += fallbacks_ > 0 || !as_planned ? steps : 0;
  numbers_.fallbacks = fallbacks_;
  if (counts_faults_) numbers_.page_faults = thread_page_faults() - faults_before_;
}

bool StepArena::may_plan() const {
  return planning_seconds_ < kShortSeconds || since_plan_.seconds() > kPause * planning_seconds_;
}

void StepArena::make_plan(Kind& kind, const std::vector<Request>& requests) {
  ++kind.plans;
  const Stopwatch planning;
  std::vector<TimedBuffer> buffers;
  std::vector<size_t> index;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (requests[i].end == kOutlives) continue;
    // Qualified: unity builds see other types of that name.
    buffers.push_back({static_cast<int64_t>(i), requests[i].end, graphpipe::Bytes(requests[i].bytes),
                       graphpipe::Bytes(kStepAlignment)});
    index.push_back(i);
  }
  OffsetOptions options = kStepOffsets;
  if (numbers_.planned_bytes > 0) {
    options.capacity = graphpipe::Bytes(numbers_.planned_bytes);
    options.max_steps = kRunSteps;
  }
  const OffsetPlan placed = plan_offsets(buffers, options);
  give_back_free_memory();
  if (!memory_.grow(std::max(placed.height.count, numbers_.planned_bytes))) return;
  Plan plan{.requests = requests, .offsets = std::vector<int64_t>(requests.size(), kOutside)};
  for (size_t i = 0; i < index.size(); ++i) plan.offsets[index[i]] = placed.offsets[i].count;
  kind.plan = std::move(plan);
  live_.reserve(live_.size() + requests.size());
  numbers_.bytes = memory_.bytes();
  planning_seconds_ = planning.seconds();
  since_plan_ = Stopwatch();
}

ArenaNumbers StepArena::numbers() const {
  const std::lock_guard lock(mutex_);
  return numbers_;
}

}  // namespace graphpipe::runtime
