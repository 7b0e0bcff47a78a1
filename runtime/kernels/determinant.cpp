#include "runtime/kernels/determinant.h"

#define AT_PER_OPERATOR_HEADERS  // TensorOperators.h then includes what it needs, not all of ATen
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/diag_embed.h>
#include <ATen/ops/linalg_lu_factor_ex.h>
#include <ATen/ops/linalg_lu_solve.h>
#include <ATen/ops/where.h>

#include <limits>

namespace graphpipe::runtime {

// The cofactors are det(x) times the transposed inverse. If a pivot is 0, so is the determinant, and there is no
// inverse: with a small number in place of the pivot, the product is close to its limit.
at::Tensor determinant_gradient(const at::Tensor& gradient, const at::Tensor& x) {
  const auto [factors, pivots, info] = at::linalg_lu_factor_ex(x);
  const double tiny =
      x.scalar_type() == at::kDouble ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
  const at::Tensor diagonal = factors.diagonal(0, -2, -1);
  const at::Tensor filled = at::where(diagonal == 0, diagonal.new_full({}, tiny), diagonal);
  // Each pivot that is out of place is a swap of two rows. They are counted from 1.
  const at::Tensor places = at::arange(1, pivots.size(-1) + 1, pivots.options());
  const at::Tensor sign = 1 - 2 * (pivots != places).sum(-1).remainder(2);
  const at::Tensor scale = gradient * sign * filled.prod(-1);
  const at::Tensor right = at::diag_embed(scale.unsqueeze(-1).expand_as(filled));
  const at::Tensor sound = factors + at::diag_embed(filled - diagonal);
  return at::linalg_lu_solve(sound, pivots, right, /*left=*/true, /*adjoint=*/true);
}

}  // namespace graphpipe::runtime
