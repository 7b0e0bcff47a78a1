// Adagrad with one sum per row of an embedding table, the mean of the squares of the row's gradient: Naumov et al.,
// Deep Learning Recommendation Model for Personalization and Recommendation Systems, 2019, and Khudia et al., FBGEMM,
// 2021 (EXACT_ROWWISE_ADAGRAD). Other parameters use Adagrad, as there.

#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "runtime/optimizers/moments.h"
#include "runtime/optimizers/registry.h"
#include "runtime/optimizers/sum_of_squares.h"

namespace graphpipe::runtime {
namespace {

bool has_rows(const at::Tensor& weight, const UpdateTerms& terms) { return terms.is_table && weight.dim() > 1; }

ParameterState fresh_row_sums(const at::Tensor& weight, const UpdateTerms& terms) {
  if (!has_rows(weight, terms)) return fresh_sum(weight, terms);
  std::vector<int64_t> rows(static_cast<size_t>(weight.dim()), 1);
  rows.front() = weight.size(0);
  return {{"sum", at::zeros(rows, weight.options())}, fresh_steps(weight)};
}

double update_rows(at::Tensor& weight, const at::Tensor& gradient, ParameterState& state, const UpdateTerms& terms) {
  if (!has_rows(weight, terms)) return update_adagrad(weight, gradient, state, terms);
  const OptimizerNumbers& numbers = terms.numbers;
  state[kSumSteps].tensor.add_(1);
  const at::Tensor change = numbers.weight_decay != 0 ? gradient.add(weight, numbers.weight_decay) : gradient;
  std::vector<int64_t> axes;
  for (int64_t axis = 1; axis < weight.dim(); ++axis) axes.push_back(axis);
  at::Tensor& sum = state[kSumOfSquares].tensor;
  const auto width = static_cast<double>(weight.numel() / std::max<int64_t>(weight.size(0), 1));
  // Divided before it is squared, which 16 bits may not hold.
  sum.add_(at::linalg_vector_norm(change, 2, axes, /*keepdim=*/true).div_(std::sqrt(width)).square_());
  weight.addcdiv_(change, sum.sqrt().add_(numbers.epsilon), -numbers.learning_rate);
  return numbers.learning_rate;
}

}  // namespace

UpdateRule row_wise_adagrad_rule() {
  return {.name = "row-wise-adagrad",
          .fresh_state = fresh_row_sums,
          .update = update_rows,
          .scale = scale_of_sum,
          .skips_zero_rows = adagrad_skips_zero_rows};
}

}  // namespace graphpipe::runtime
