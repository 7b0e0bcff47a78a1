#pragma once
// The steps of the plans that a search has timed. Searches with single parameters fixed, and climbs from several
// starts, meet the same plans again and again, and to simulate one takes longer than to find it.

#include <functional>
#include <mutex>
#include <unordered_map>

#include "ir/assignment.h"

namespace graphpipe::partitioner {

class KnownSteps {
 public:
  /// `evaluate`: PlanRequest::evaluate, which says the same of equal plans.
  explicit KnownSteps(std::function<double(const ir::Assignment&)> evaluate) : evaluate_(std::move(evaluate)) {}

  /// What `evaluate` says of the plan, which it is asked once. From any thread; one that asks for a plan that another
  /// evaluates waits for it.
  double of(const ir::Assignment& plan);

 private:
  struct Known {
    explicit Known(const ir::Assignment& of) : plan(of) {}
    const ir::Assignment plan;
    std::once_flag once;
    double step = 0;
  };
  Known& entry_of(const ir::Assignment& plan);

  std::function<double(const ir::Assignment&)> evaluate_;
  std::mutex mutex_;
  /// By a hash of the plan. Entries stay where they are while others are added.
  std::unordered_multimap<size_t, Known> known_;
};

}  // namespace graphpipe::partitioner
