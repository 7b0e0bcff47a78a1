#pragma once
// When a search over layers has to end: at its time limit, or when another thread says so.

#include <string>

#include "partitioner/layers/layer_planners.h"
#include "support/stopwatch.h"
#include "support/units.h"

namespace graphpipe::partitioner {

class SearchClock {
 public:
  explicit SearchClock(const LayerPlanRequest& request) : request_(request) {}

  double seconds() const { return watch_.seconds(); }
  /// Cheap enough to be asked once per set of layers.
  bool must_stop() const {
    return (request_.cancel != nullptr && request_.cancel->load(std::memory_order_relaxed)) ||
           (request_.time_limit < kInfinity && seconds() >= request_.time_limit);
  }
  /// For LayerPlanAnswer::stopped. Needs: must_stop() was true.
  std::string reason() const {
    return request_.cancel != nullptr && request_.cancel->load() ? "the search was ended"
                                                                 : "the time limit was reached";
  }

 private:
  const LayerPlanRequest& request_;
  Stopwatch watch_;
};

}  // namespace graphpipe::partitioner
