#include "runtime/optimizers/loss_scale.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/error.h"
#include "support/exact_integer.h"

namespace graphpipe::runtime {
namespace {

// Float16 itself spans 40 powers of two.
constexpr double kSmallestScale = 0x1p-24;
// All-zero gradients never overflow, so without a limit the scaled loss eventually would.
constexpr double kLargestScale = 0x1p24;

}  // namespace

bool LossScale::note(bool overflow, bool is_update) {
  overflow_pending_ = overflow_pending_ || overflow;
  if (!is_update) return false;
  if (!std::exchange(overflow_pending_, false)) {
    if (++good_updates_ < growth_updates_) return false;
    good_updates_ = 0;
    scale_ = std::max(scale_, std::min(2 * scale_, kLargestScale));
    return false;
  }
  good_updates_ = 0;
  scale_ /= 2;
  if (scale_ < kSmallestScale)
    fail(Code::kCheckFailed, text("gradients are not finite at any loss scale down to ", 2 * scale_),
         "what the forward computes is not finite: compile with --precision bf16, which has the range of float32, or "
         "lower the learning rate");
  return true;
}

at::Tensor LossScale::state() const {
  at::Tensor state = at::empty({3}, at::TensorOptions().dtype(at::kDouble));
  auto* numbers = state.mutable_data_ptr<double>();
  numbers[0] = scale_;
  numbers[1] = static_cast<double>(good_updates_);
  numbers[2] = overflow_pending_ ? 1 : 0;
  return state;
}

bool LossScale::take_state(const at::Tensor& state) {
  if (state.scalar_type() != at::kDouble || state.numel() != 3) return false;
  const at::Tensor dense = state.contiguous();
  const auto* numbers = dense.const_data_ptr<double>();
  int exponent = 0;
  if (!(numbers[0] > 0) || std::frexp(numbers[0], &exponent) != 0.5 || !(numbers[1] >= 0)) return false;
  if (!std::isfinite(numbers[0]) || numbers[1] > static_cast<double>(kMaxExactInteger)) return false;
  scale_ = numbers[0];
  good_updates_ = static_cast<int64_t>(numbers[1]);
  overflow_pending_ = numbers[2] != 0;
  return true;
}

}  // namespace graphpipe::runtime
