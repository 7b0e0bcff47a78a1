#include "frontend/resize_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace graphpipe::frontend {
namespace {

template <size_t Count>
bool is_one_of(const std::string& word, const std::array<std::string_view, Count>& words) {
  return std::ranges::find(words, word) != words.end();
}

/// The position in the input, in cells, that cell `i` of the result reads.
double source_of(const ResizeForm& form, const ResizedAxis& axis, double i) {
  const auto before = static_cast<double>(axis.before), after = static_cast<double>(axis.after);
  // Not rounded to whole cells: with scales, the last cells of input and result need not coincide.
  const double length = axis.scale * before;
  if (form.coordinates == "align_corners") return length == 1 ? 0 : i * (before - 1) / (length - 1);
  if (form.coordinates == "asymmetric") return i / axis.scale;
  if (form.coordinates == "pytorch_half_pixel" && length == 1) return -0.5;
  if (form.coordinates == "tf_crop_and_resize") {
    const double span = (axis.crop_end - axis.crop_start) * (before - 1);
    return axis.crop_start * (before - 1) + (length == 1 ? span / 2 : i * span / (length - 1));
  }
  // The centre stays in place, even if the result is a fraction of a cell shorter than its length.
  const double shift = form.coordinates == "half_pixel_symmetric" ? before / 2 * (1 - after / length) : 0;
  return shift + (i + 0.5) / axis.scale - 0.5;
}

int64_t nearest(const std::string& rounding, double place) {
  const double below = std::floor(place), rest = place - below;
  if (rest == 0) return static_cast<int64_t>(below);
  bool up = rounding == "ceil";
  if (rounding == "round_prefer_floor") up = rest > 0.5;
  if (rounding == "round_prefer_ceil") up = rest >= 0.5;
  return static_cast<int64_t>(below) + (up ? 1 : 0);
}

/// The weight of a cell at this distance. Keys, "Cubic convolution interpolation for digital image processing", 1981.
double kernel(const ResizeForm& form, double distance) {
  const double d = std::abs(distance), a = form.cubic;
  if (form.mode == "linear") return std::max(0.0, 1 - d);
  if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

}  // namespace

bool has_resize_weights(const ResizeForm& form) {
  return is_one_of<3>(form.mode, {"nearest", "linear", "cubic"}) &&
         is_one_of<6>(form.coordinates, {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
                                         "asymmetric", "tf_crop_and_resize"}) &&
         is_one_of<4>(form.rounding, {"floor", "ceil", "round_prefer_floor", "round_prefer_ceil"});
}

ResizeWeights resize_weights(const ResizeForm& form, const ResizedAxis& axis) {
  const auto rows = static_cast<size_t>(axis.before), columns = static_cast<size_t>(axis.after);
  ResizeWeights weights{std::vector<double>(rows * columns), std::vector<bool>(columns)};
  // When downsampling, antialiasing widens the kernel to the cells that one cell of the result represents.
  const double narrowing = form.antialias ? std::min(1.0, axis.scale) : 1;
  const double reach = (form.mode == "cubic" ? 2 : 1) / narrowing;
  for (size_t column = 0; column < columns; ++column) {
    const double place = source_of(form, axis, static_cast<double>(column));
    if (form.coordinates == "tf_crop_and_resize" && (place < 0 || place > static_cast<double>(axis.before - 1))) {
      weights.outside[column] = true;
      continue;
    }
    const auto add = [&](int64_t cell, double weight) {
      const auto row = static_cast<size_t>(std::clamp<int64_t>(cell, 0, axis.before - 1));
      weights.matrix[row * columns + column] += weight;
    };
    if (form.mode == "nearest") {
      add(nearest(form.rounding, place), 1);
      continue;
    }
    double sum = 0;
    const auto first = static_cast<int64_t>(std::floor(place - reach)), last = static_cast<int64_t>(place + reach) + 1;
    const auto counts = [&](int64_t cell) { return !form.exclude_outside || (cell >= 0 && cell < axis.before); };
    const auto weight_of = [&](int64_t cell) { return kernel(form, (static_cast<double>(cell) - place) * narrowing); };
    for (int64_t cell = first; cell <= last; ++cell)
      if (counts(cell)) sum += weight_of(cell);
    const double divisor = form.antialias || form.exclude_outside ? sum : 1;
    for (int64_t cell = first; cell <= last; ++cell)
      if (counts(cell) && divisor != 0) add(cell, weight_of(cell) / divisor);
  }
  return weights;
}

}  // namespace graphpipe::frontend
