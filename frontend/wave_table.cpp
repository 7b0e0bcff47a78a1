#include "frontend/wave_table.h"

#include <algorithm>
#include <cmath>
#include <optional>
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

/// How many rows are of such angles; nothing where one is no row of sines and cosines.
std::optional<size_t> rows_of_waves(std::span<const double> elements, size_t width, double rounding) {
  size_t rows = 0;
  const double wanted = static_cast<double>(width) / 2;
  for (size_t at = 0; at + width <= elements.size(); at += width) {
    const std::span row = elements.subspan(at, width);
    const double sum = sum_of_squares(row);
    if (sum == 0) continue;
    if (!(std::abs(sum - wanted) <= rounding * wanted) ||
        std::ranges::any_of(row, [&](double element) { return std::abs(element) > 1 + rounding; }))
      return std::nullopt;
    if (has_other_angles(row, rounding)) ++rows;
  }
  return rows;
}

}  // namespace

bool holds_waves(const ir::TensorType& type, const ir::DataSource& data, const std::string& model_path,
                 const std::string& trusted_root) {
  if (type.shape.size() < 2 || std::holds_alternative<ir::FilledData>(data)) return false;
  const int64_t width = type.shape.back().factor;
  if (type.shape.back() != ir::Dim::fixed(width) || width < kNarrowestRow || width % 2 != 0) return false;
  const int64_t element_bytes = ir::bytes_per_element(type.dtype);
  const double rounding = element_bytes < 4 ? 1e-2 : 1e-4;
  std::optional<size_t> rows;
  // Of other tensors, which are all but a few, the first row tells.
  for (const int64_t looked_at : {std::min(width, kLookedAt) * element_bytes, kLookedAt}) {
    const std::vector<double> elements = first_elements(data, type.dtype, looked_at, model_path, trusted_root);
    rows = rows_of_waves(elements, static_cast<size_t>(width), rounding);
    if (!rows) return false;
  }
  return *rows >= kFewestRows;
}

}  // namespace graphpipe::frontend
