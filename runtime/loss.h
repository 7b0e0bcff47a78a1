#pragma once
// The step's loss and the rest of a step's outcome.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace graphpipe::runtime {

/// An item's share of the step's loss.
struct LossShare {
  int64_t first_sample = 0;
  double value = 0;
};

struct StepOutcome {
  std::vector<LossShare> losses;
  int64_t samples = 0;
  /// The divisor of the sums behind the losses; 0 if this rank computes no loss.
  double loss_divisor = 0;
  /// Global gradient norm before clipping; negative if it was not requested.
  double gradient_norm = -1;
  /// Why the step made no update; empty if it made one.
  std::string skipped;
  /// The factor on the loss for its gradients; 0 without loss scaling (loss_scale.h).
  double loss_scale = 0;
  /// Whether, at that scale, some gradients were not finite, on any rank.
  bool overflow = false;
};

/// Shares added in sample order, in double.
inline double total_loss(std::vector<LossShare> shares) {
  std::ranges::sort(shares, {}, &LossShare::first_sample);
  double sum = 0;
  for (const LossShare& share : shares) sum += share.value;
  return sum;
}

}  // namespace graphpipe::runtime
