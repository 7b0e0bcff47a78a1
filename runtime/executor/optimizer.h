#pragma once
// SGD with momentum and AdamW with PyTorch's meaning, in place, one parameter at a time: the bits of a parameter's
// update do not depend on which other parameters share its stage.
// AdamW: Loshchilov and Hutter, Decoupled Weight Decay Regularization, 2019, Algorithm 2.

#include <ATen/core/Tensor.h>

#include <vector>

#include "runtime/program.h"
#include "wire/run_options.h"

namespace graphpipe::runtime {

struct OptimizerNumbers {
  OptimizerKind kind = OptimizerKind::kSgd;
  double learning_rate = 0.01;
  double momentum = 0;
  double weight_decay = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
};

OptimizerNumbers optimizer_numbers(OptimizerKind kind, const wire::RunOptions& options);

/// The optimizer state of one copy of a stage's parameters.
class Optimizer {
 public:
  Optimizer(const OptimizerNumbers& numbers, size_t parameters) : numbers_(numbers), states_(parameters) {}
  /// Updates `weight` in place. `index` says whose state to use; the state is made at the first call.
  void step(size_t index, at::Tensor& weight, const at::Tensor& gradient);
  /// AdamW's second moment, corrected for its start: the mean square of the gradient. Undefined before the first step,
  /// and where the optimizer has none.
  at::Tensor second_moment(size_t index) const;

 private:
  struct State {
    at::Tensor first, second, steps;
    bool started = false;
  };
  OptimizerNumbers numbers_;
  std::vector<State> states_;
};

/// Sum of squares of a gradient, in double.
double squared_norm(const at::Tensor& gradient);

/// What gradients are multiplied with so that their global norm is at most `largest`; 1 where it is already, or where
/// largest is 0.
double clip_factor(double norm, double largest);

}  // namespace graphpipe::runtime
