#pragma once
// The factor of the loss where gradients are computed in float16: without it small ones would be zero (Micikevicius et
// al., Mixed Precision Training, ICLR 2018, section 3.2). It is adapted as torch.amp.GradScaler does: an update whose
// gradients are not all finite is left out and halves the factor, and after so many good updates it doubles. Powers of
// two, so that loss and gradients have the same bits with any of them as far as nothing leaves the range.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace graphpipe::runtime {

class LossScale {
 public:
  /// `start`: a power of two. `growth_updates`: good updates in a row after which the factor doubles.
  LossScale(double start, int64_t growth_updates) : scale_(start), growth_updates_(growth_updates) {}

  /// Of the step that runs, or comes next.
  double scale() const { return scale_; }
  /// Gives the next step another one, a power of two.
  void take_scale(double scale) { scale_ = scale; }
  /// After a step's gradients are reduced, with what all ranks have found. `is_update`: the step makes an update, of
  /// its own gradients and those of the steps since the last one. Returns whether that update is to be left out. Throws
  /// RunError (kCheckFailed) where the factor has become so small that it cannot be the cause.
  bool note(bool overflow, bool is_update);

  /// What the next step depends on, as a tensor of float64 for checkpoints.
  at::Tensor state() const;
  /// Goes on from such a tensor. False where it is none.
  bool take_state(const at::Tensor& state);

 private:
  double scale_;
  int64_t growth_updates_;
  int64_t good_updates_ = 0;       // in a row
  bool overflow_pending_ = false;  // in a step since the last update
};

}  // namespace graphpipe::runtime
