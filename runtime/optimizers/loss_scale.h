#pragma once
// The factor on the loss if gradients are computed in float16: without it small ones would underflow to zero
// (Micikevicius et al., Mixed Precision Training, ICLR 2018, section 3.2). It is adapted as in torch.amp.GradScaler: an
// update with non-finite gradients is skipped and halves the factor, and after a number of good updates it doubles. It
// is a power of two, so that loss and gradients have the same bits with any factor as long as nothing leaves the range.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace graphpipe::runtime {

class LossScale {
 public:
  /// `start`: a power of two. `growth_updates`: good updates in a row after which the factor doubles.
  LossScale(double start, int64_t growth_updates) : scale_(start), growth_updates_(growth_updates) {}

  /// The scale of the current or next step.
  double scale() const { return scale_; }
  /// Sets the scale of the next step, a power of two.
  void take_scale(double scale) { scale_ = scale; }
  /// Call after a step's gradients are reduced, with the combined finding of all ranks. `is_update`: the step makes an
  /// update, from its own gradients and those of the steps since the last one. Returns whether that update is to be
  /// skipped. Throws RunError (kCheckFailed) if the factor is already so small that it cannot be the cause.
  bool note(bool overflow, bool is_update);

  /// What the next step depends on, as a float64 tensor for checkpoints.
  at::Tensor state() const;
  /// Restores from such a tensor. False if it is malformed.
  bool take_state(const at::Tensor& state);

 private:
  double scale_;
  int64_t growth_updates_;
  int64_t good_updates_ = 0;       // in a row
  bool overflow_pending_ = false;  // in a step since the last update
};

}  // namespace graphpipe::runtime
