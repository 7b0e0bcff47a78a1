#pragma once
// When a search over layers has to end: at its time limit, or when another thread says so.

#include <chrono>
#include <string>

#include "partitioner/layer_planners.h"

namespace graphpipe::partitioner {

class SearchClock {
 public:
  explicit SearchClock(const LayerPlanRequest& request) : request_(request) {}

  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  /// Cheap enough to be asked once per set of layers.
  bool must_stop() const {
    return (request_.cancel != nullptr && request_.cancel->load(std::memory_order_relaxed)) ||
           (request_.time_limit < std::numeric_limits<double>::infinity() && seconds() >= request_.time_limit);
  }
  /// For LayerPlanAnswer::stopped. Needs: must_stop() was true.
  std::string reason() const {
    return request_.cancel != nullptr && request_.cancel->load() ? "the search was ended"
                                                                 : "the time limit was reached";
  }

 private:
  const LayerPlanRequest& request_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace graphpipe::partitioner
