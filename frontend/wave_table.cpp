#include "frontend/wave_table.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "frontend/first_elements.h"

namespace graphpipe::frontend {
namespace {

constexpr int64_t kLookedAt = int64_t{256} << 10;
/// Of rows that are wide enough not to have such a sum by chance.
constexpr size_t kFewestRows = 3;
constexpr int64_t kNarrowestRow = 4;

double sum_of_squares(std::span<const double> row) {
  double sum = 0;
  for (const double element : row) sum += element * element;
  return sum;
}

/// Sines and cosines of 0 alone, or of 45 degrees, may as well be numbers that a module begins with: 0, 1, 1 / sqrt(2).
bool has_other_angles(std::span<const double> row, double rounding) {
  return std::ranges::any_of(row, [&](double element) {
    return element != 0 && std::abs(element) != 1 && std::abs(std::abs(element) - std::sqrt(0.5)) > rounding;
  });
}

}  // namespace

bool holds_waves(const ir::TensorType& type, const ir::DataSource& data, const std::string& model_path,
                 const std::string& trusted_root) {
  if (type.shape.size() < 2 || std::holds_alternative<ir::FilledData>(data)) return false;
  const int64_t width = type.shape.back().factor;
  if (type.shape.back() != ir::Dim::fixed(width) || width < kNarrowestRow || width % 2 != 0) return false;
  const std::vector<double> elements = first_elements(data, type.dtype, kLookedAt, model_path, trusted_root);
  const double rounding = ir::bytes_per_element(type.dtype) < 4 ? 1e-2 : 1e-4;
  const auto size = static_cast<size_t>(width);
  size_t rows = 0;
  for (size_t at = 0; at + size <= elements.size(); at += size) {
    const std::span row(elements.data() + at, size);
    const double sum = sum_of_squares(row), wanted = static_cast<double>(width) / 2;
    if (sum == 0) continue;
    if (!(std::abs(sum - wanted) <= rounding * wanted) ||
        std::ranges::any_of(row, [&](double element) { return std::abs(element) > 1 + rounding; }))
      return false;
    if (has_other_angles(row, rounding)) ++rows;
  }
  return rows >= kFewestRows;
}

}  // namespace graphpipe::frontend
