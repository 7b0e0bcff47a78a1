#include "runtime/training/watchers.h"

#include <utility>

#include "runtime/error.h"
#include "runtime/training/loss_limit.h"
#include "runtime/training/step_log.h"

namespace graphpipe::runtime {
namespace {

/// Ends the run after a step with too large a loss. (A non-finite loss ends it before its update.)
class LossWatch : public StepObserver {
 public:
  LossWatch(double factor, const std::vector<double>& earlier) : limit_(factor, earlier) {}
  Request after_step(const StepFacts& facts) override {
    if (!facts.loss || !facts.skipped.empty()) return {};
    if (const std::optional<std::string> problem = limit_.problem(*facts.loss))
      fail(Code::kCheckFailed, text("step ", facts.step + 1, ": ", *problem),
           "lower the learning rate, clip gradients with --clip-norm, skip such steps with --on-anomaly skip, or raise "
           "--max-loss-factor");
    limit_.keep(*facts.loss);
    return {};
  }

 private:
  LossLimit limit_;
};

/// On ranks other than 0, takes the position of an observer that only rank 0 needs.
class Silent : public StepObserver {};

}  // namespace

Watchers::Watchers(const wire::RunOptions& options, bool is_rank_zero, const std::vector<double>& earlier) {
  const wire::WatchOptions& watch = options.watch;
  const auto own = [&](std::unique_ptr<StepObserver> observer) {
    all_.push_back(is_rank_zero ? std::move(observer) : std::make_unique<Silent>());
  };
  if (!watch.log.empty()) own(std::make_unique<StepLog>(watch.log));
  if (!watch.tensorboard.empty()) own(std::make_unique<TensorBoardLog>(watch.tensorboard));
  // The last one, so that the others' files show what went wrong before the run ends.
  if (watch.max_loss_factor > 0 && !watch.skips()) own(std::make_unique<LossWatch>(watch.max_loss_factor, earlier));
}

void Watchers::add_to(std::vector<StepObserver*>& observers) const {
  for (const std::unique_ptr<StepObserver>& observer : all_) observers.push_back(observer.get());
}

}  // namespace graphpipe::runtime
