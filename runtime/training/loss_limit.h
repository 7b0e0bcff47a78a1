#pragma once
// Which losses are too large: those far above the median of recent steps, which a single bad step does not move.

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "wire/run/watch.h"

namespace graphpipe::runtime {

class LossLimit {
 public:
  /// A loss is too large if it exceeds `factor` times the median of the last wire::kLossWindow losses, or for a
  /// negative median if it is above it by the same amount. 0: no limit. There is no limit before wire::kFewestLosses
  /// were kept, nor at a median of 0. `earlier`: losses kept before, the oldest first.
  explicit LossLimit(double factor, const std::vector<double>& earlier = {}) : factor_(factor) {
    for (const double loss : earlier) keep(loss);
  }

  /// "the loss 57.3 is more than 10 times the median of the last 32, 0.41"; absent if it is within the limit.
  std::optional<std::string> problem(double loss) const;
  /// Adds a loss that later ones are compared with. Non-finite losses are ignored.
  void keep(double loss);
  /// The losses in the window, the oldest first.
  std::vector<double> kept() const { return {last_.begin(), last_.end()}; }

 private:
  double factor_;
  std::deque<double> last_;
};

}  // namespace graphpipe::runtime
