// Muon: Jordan et al., Muon: An optimizer for hidden layers in neural networks, 2024. The momentum of a matrix is
// approximately orthogonalised by five Newton-Schulz iterations. Tables, vectors and all other parameters use AdamW, as
// its authors do.
//
// The change is scaled by 0.2 sqrt(max(rows, columns)), so that one learning rate and weight decay suit both (Liu et
// al., Muon is Scalable for LLM Training, 2025, section 2.2: torch.optim.Muon's "match_rms_adamw"). It is the same for
// a matrix and its transpose, and exporters may store either. The iterations use the weight's type, not bfloat16.

#include <ATen/ops/addmm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>

#include "runtime/optimizers/moments.h"
#include "runtime/optimizers/registry.h"
#include "wire/optimizers.h"

namespace graphpipe::runtime {
namespace {

constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;
constexpr int kIterations = wire::kMatrixIterations;
constexpr double kSmallestNorm = 1e-7;

bool is_matrix(const at::Tensor& weight, const UpdateTerms& terms) { return weight.dim() == 2 && !terms.is_table; }

ParameterState fresh_muon(const at::Tensor& weight, const UpdateTerms& terms) {
  if (!is_matrix(weight, terms)) return fresh_moments(weight, terms);
  return {{"momentum_buffer", at::zeros_like(weight)}};
}

// In place of the matrix.
at::Tensor orthogonal(at::Tensor matrix) {
  const bool tall = matrix.size(0) > matrix.size(1);
  // LibTorch's products pack what lies across.
  at::Tensor x = tall ? matrix.t().contiguous() : matrix;
  matrix.reset();
  x.div_(x.norm().clamp_min_(kSmallestNorm));
  for (int i = 0; i < kIterations; ++i) {
    const at::Tensor gram = at::matmul(x, x.t());
    x = at::addmm(x, at::addmm(gram, gram, gram, kB, kC), x, kA);
  }
  return tall ? x.t() : x;
}

at::Tensor look_ahead(const at::Tensor& gradient, const ParameterState& state, const UpdateTerms& terms) {
  return gradient.lerp(state[0].tensor, terms.numbers.momentum);
}

double update_muon(at::Tensor& weight, const at::Tensor& gradient, ParameterState& state, const UpdateTerms& terms) {
  if (!is_matrix(weight, terms)) return update_adamw(weight, gradient, state, terms);
  const OptimizerNumbers& numbers = terms.numbers;
  state[0].tensor.lerp_(gradient, 1 - numbers.momentum);
  const at::Tensor update = orthogonal(look_ahead(gradient, state, terms));
  const double rate =
      numbers.learning_rate * 0.2 * std::sqrt(static_cast<double>(std::max(weight.size(0), weight.size(1))));
  weight.mul_(1 - numbers.learning_rate * numbers.weight_decay);
  weight.sub_(update, rate);
  return rate;
}

// The iterations are a function of the singular values whose slope is at most kA^5: relative to the norm of the matrix,
// an error of the result is at most kA^5 times an error of the matrix. Expressed as the root that an Adam update
// divides by, that is the norm over kA^5.
UpdateScale scale_of_muon(const at::Tensor& gradient, const ParameterState& state, const UpdateTerms& terms) {
  if (state.size() > 1) return scale_of_moments(gradient, state, terms);
  const double norm = look_ahead(gradient, state, terms).norm().item<double>();
  const double divisor = norm / std::pow(kA, kIterations);
  return {.second_moment = at::zeros_like(gradient).fill_(divisor * divisor), .gradient_norm = norm};
}

}  // namespace

UpdateRule muon_rule() {
  return {.name = "muon", .fresh_state = fresh_muon, .update = update_muon, .scale = scale_of_muon};
}

}  // namespace graphpipe::runtime
