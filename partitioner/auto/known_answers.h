#pragma once
// What the searches of one request have found: around better and better plans the same narrower request comes up again.

#include <map>
#include <mutex>
#include <optional>
#include <tuple>

#include "partitioner/planner.h"

namespace graphpipe::partitioner {

/// Answers of search_as_asked, of requests that differ in their micro-batch, stages and devices alone.
class KnownAnswers {
 public:
  /// Searches where no request with these three was searched before. An earlier request knew no better step, so that it
  /// left out no plan that this one looks for.
  Result<PlanAnswer> of(const PlanRequest& request);

 private:
  /// Samples, or zero where each size is searched; whether stages may differ in them; stages, or zero; devices.
  using Key = std::tuple<int64_t, bool, int, size_t>;
  struct Known {
    std::once_flag once;
    std::optional<Result<PlanAnswer>> answer;
  };

  std::mutex mutex_;
  std::map<Key, Known> known_;  // entries stay where they are
};

}  // namespace graphpipe::partitioner
