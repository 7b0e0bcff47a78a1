#include "partitioner/graphpipe/outside_work.h"

#include <algorithm>
#include <cmath>

#include "support/units.h"

namespace graphpipe::partitioner {

OutsideWork::OutsideWork(const SearchSpace& space, const std::vector<const StageEvaluator*>& evaluators) {
  const auto work_of = [&](ir::PlanNodeId node) {
    double smallest = kInfinity;
    for (const StageEvaluator* evaluator : evaluators)
      smallest = std::min(smallest, evaluator->min_work_per_sample(node));
    return smallest;
  };
  for (const SearchChain& chain : space.chains) {
    std::vector<double>& before = before_.emplace_back(1, 0.0);
    for (const SearchElement& element : chain.elements) {
      double work = before.back();
      for (const ir::PlanNodeId node : element.nodes) work += work_of(node);
      before.push_back(work);
    }
  }
}

int OutsideWork::max_devices(int chain, int first, int last, double t, int devices) const {
  if (!any(chain, first, last)) return devices;
  const std::vector<double>& before = before_[static_cast<size_t>(chain)];
  const double inside = before[static_cast<size_t>(last)] - before[static_cast<size_t>(first)];
  // The factor allows for rounding: sums of the same numbers in another order differ in their last digits.
  const double min_devices = (before_.back().back() - inside) / t * (1 - 1e-9);
  return devices - static_cast<int>(std::ceil(std::clamp(min_devices, 1.0, devices + 1.0)));
}

bool OutsideWork::any(int chain, int first, int last) const {
  const size_t size = before_[static_cast<size_t>(chain)].size() - 1;
  return static_cast<size_t>(chain) + 1 < before_.size() || first > 0 || static_cast<size_t>(last) < size;
}

}  // namespace graphpipe::partitioner
