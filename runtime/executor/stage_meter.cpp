#include "runtime/executor/stage_meter.h"

#include <utility>

namespace graphpipe::runtime {
namespace {

double seconds_until_now(std::chrono::steady_clock::time_point& since) {
  const auto now = std::chrono::steady_clock::now();
  return std::chrono::duration<double>(now - std::exchange(since, now)).count();
}

}  // namespace

StageMeter::StageMeter(const std::vector<Instance>& instances) {
  for (const Instance& instance : instances)
    numbers_.push_back({.stage = instance.entry->stage, .replica = instance.replica});
}

void StageMeter::begin(size_t instance) {
  instance_ = instance;
  since_ = Clock::now();
}

void StageMeter::ready() { numbers_[instance_].waiting += seconds_until_now(since_); }

void StageMeter::end() { numbers_[instance_].busy += seconds_until_now(since_); }

std::vector<StageNumbers> StageMeter::take() {
  std::vector<StageNumbers> out = numbers_;
  for (StageNumbers& numbers : numbers_) numbers.busy = numbers.waiting = 0;
  return out;
}

}  // namespace graphpipe::runtime
