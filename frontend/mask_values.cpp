#include "frontend/mask_values.h"

#include <algorithm>

#include "frontend/first_elements.h"

namespace graphpipe::frontend {
namespace {

constexpr double kBelowTables = -9999;
/// A causal mask has a masked value in its first row, whatever its length.
constexpr int64_t kLookedAt = 4096;

}  // namespace

bool holds_mask_values(const ir::DataSource& data, ir::DType dtype, const std::string& model_path,
                       const std::string& trusted_root) {
  const std::vector<double> elements = first_elements(data, dtype, kLookedAt, model_path, trusted_root);
  return std::ranges::any_of(elements, [](double element) { return element < kBelowTables; });
}

}  // namespace graphpipe::frontend
