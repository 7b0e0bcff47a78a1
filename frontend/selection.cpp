#include "frontend/selection.h"

#include <algorithm>

namespace graphpipe::frontend {
namespace {

/// Larger than every power of the batch.
constexpr int kPlaces = 1024;

int batch_power(const ir::Shape& box) {
  int power = 0;
  for (const ir::Dim dim : box) power += dim.power;
  return power;
}

}  // namespace

ir::Dim picked_places(size_t index, const ir::Shape& box) {
  return {1, kPlaces * static_cast<int>(index + 1) + batch_power(box)};
}

bool counts_places(ir::Dim dim) { return dim.power >= kPlaces / 2; }
bool counts_places(const Number& number) { return number.power >= kPlaces / 2; }
bool counts_places(const ir::Shape& shape) {
  return std::ranges::any_of(shape, [](ir::Dim dim) { return counts_places(dim); });
}

size_t selection_of(int power) { return static_cast<size_t>((power + kPlaces / 2) / kPlaces) - 1; }

std::optional<std::vector<size_t>> numbered_axes(const Coordinate& coordinate, const ir::Shape& box, ir::Dim size) {
  if (coordinate.offset != 0) return std::nullopt;
  std::vector<size_t> axes;
  for (size_t i = 0; i < box.size(); ++i)
    if (coordinate.strides[i].factor() != 0) axes.push_back(i);
  // The axis with the next larger stride is the one whose stride is the number of elements of the axes so far.
  Number numbered = Number::of_whole(1);
  std::vector<size_t> order;
  while (order.size() < axes.size()) {
    const auto next = std::ranges::find_if(axes, [&](size_t axis) {
      return coordinate.strides[axis] == numbered && std::ranges::find(order, axis) == order.end();
    });
    if (next == axes.end()) return std::nullopt;
    order.push_back(*next);
    const std::optional<Number> more = multiply(numbered, Number::of_dim(box[*next]));
    if (!more) return std::nullopt;
    numbered = *more;
  }
  if (numbered != Number::of_dim(size)) return std::nullopt;
  std::ranges::reverse(order);
  return order;
}

}  // namespace graphpipe::frontend
