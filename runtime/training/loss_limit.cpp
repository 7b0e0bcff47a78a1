#include "runtime/training/loss_limit.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "support/median.h"
#include "support/text.h"

namespace graphpipe::runtime {
namespace {

std::string nine_digits(double number) {
  char buffer[40];
  std::snprintf(buffer, sizeof buffer, "%.9g", number);
  return buffer;
}

}  // namespace

std::optional<std::string> LossLimit::problem(double loss) const {
  if (factor_ <= 0 || last_.size() < static_cast<size_t>(wire::kFewestLosses)) return std::nullopt;
  const double middle = median({last_.begin(), last_.end()});
  if (middle == 0 || loss <= middle + (factor_ - 1) * std::abs(middle)) return std::nullopt;
  return text("the loss ", nine_digits(loss), " is more than ", nine_digits(factor_), " times the median of the last ",
              last_.size(), ", ", nine_digits(middle));
}

void LossLimit::keep(double loss) {
  if (!std::isfinite(loss)) return;
  last_.push_back(loss);
  if (last_.size() > static_cast<size_t>(wire::kLossWindow)) last_.pop_front();
}

}  // namespace graphpipe::runtime
