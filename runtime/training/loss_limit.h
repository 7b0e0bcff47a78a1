#pragma once
// Which losses are too large: those far above the median of the steps before, which a single bad step does not move.

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "wire/run/watch.h"

namespace graphpipe::runtime {

class LossLimit {
 public:
  /// More than `factor` times the median of the last wire::kLossWindow losses is too large, above the median by as much
  /// where it is negative. 0: no loss is. None is before wire::kFewestLosses were kept, nor at a median of 0.
  /// `earlier`: losses kept before, the oldest first.
  explicit LossLimit(double factor, const std::vector<double>& earlier = {}) : factor_(factor) {
    for (const double loss : earlier) keep(loss);
  }

  /// "the loss 57.3 is more than 10 times the median of the last 32, 0.41"; absent where it is not.
  std::optional<std::string> problem(double loss) const;
  /// A loss that later ones are compared with. Those that are not finite do not count.
  void keep(double loss);
  /// Those that count now, the oldest first.
  std::vector<double> kept() const { return {last_.begin(), last_.end()}; }

 private:
  double factor_;
  std::deque<double> last_;
};

}  // namespace graphpipe::runtime
