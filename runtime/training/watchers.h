#pragma once
// The observers for --log, --tensorboard and --max-loss-factor. All ranks have the same ones; they do their work on
// rank 0, which knows the loss.

#include <memory>
#include <vector>

#include "runtime/training/step_observer.h"
#include "wire/run_options.h"

namespace graphpipe::runtime {

class Watchers {
 public:
  /// `earlier`: losses of the steps before, the oldest first.
  Watchers(const wire::RunOptions& options, bool is_rank_zero, const std::vector<double>& earlier = {});
  /// They live as long as this object.
  void add_to(std::vector<StepObserver*>& observers) const;

 private:
  std::vector<std::unique_ptr<StepObserver>> all_;
};

}  // namespace graphpipe::runtime
