#pragma once
// The step's loss and what else a step tells.

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
  /// What the sums behind the losses are divided by; 0 where this rank computes no loss.
  double loss_divisor = 0;
  /// Global gradient norm before clipping; negative where none was asked for.
  double gradient_norm = -1;
  /// Why the step made no update; empty where it made them.
  std::string skipped;
  /// What the loss was multiplied with for its gradients; 0 where loss_scale.h has no part in it.
  double loss_scale = 0;
  /// At that scale the gradients were not all finite, on any rank.
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
