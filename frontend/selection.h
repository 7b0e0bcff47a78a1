#pragma once
// What a mask picks. NonZero has as many coordinates as its mask has places that are not zero, which no shape can say.
//
// Nothing is picked: what is read at the coordinates keeps all places of the mask, those that were not picked hold
// ones, and whatever joins the places (a reduction, a scatter) leaves these out. So every sample stays at its place,
// and shapes stay those of the mask. In the file's shapes the number of picked places is a dim of its own, a symbol as
// the batch is.

#include <cstdint>
#include <optional>
#include <vector>

#include "frontend/known.h"
#include "ir/graph.h"

namespace graphpipe::frontend {

/// The places of one NonZero.
struct Selection {
  /// Truth values of shape `box`.
  ir::ValueId mask;
  ir::Shape box;
  /// What NonZero reads: the mask, or numbers of another type.
  ir::ValueId given;
};

/// The number of places that selection `index` picks. Divided by the batch it is the number in each sample.
ir::Dim picked_places(size_t index, const ir::Shape& box);
/// Whether a dim or number counts picked places.
bool counts_places(ir::Dim dim);
bool counts_places(const Number& number);
bool counts_places(const ir::Shape& shape);
/// Of which selection. Needs: counts_places.
size_t selection_of(int power);

/// offset + sum of strides[i] * (place along axis i of the box).
struct Coordinate {
  int64_t offset = 0;
  std::vector<Number> strides;
};

/// A tensor of the file with an axis whose elements are the picked places.
struct Selected {
  enum class Kind : uint8_t {
    /// Integers, each a function of the place.
    kCoordinates,
    /// One row for each place: in `Binding::value` the axes of the box stand for the axis.
    kRows,
    /// The first rows of `Binding::value`, as many as there are places.
    kFirstRows,
  };
  Kind kind = Kind::kCoordinates;
  size_t selection = 0;
  /// The axis of the binding's type.
  size_t axis = 0;
  /// Of rows: how many axes of the box, the first ones, the type has itself, right before `axis`.
  size_t outer = 0;
  /// Of rows: how many axes behind the box's are one with `axis` in the file.
  size_t inner = 0;
  /// Of coordinates: in row-major order over the other axes; one may stand for all. Empty where only the shape is
  /// known.
  std::vector<Coordinate> coordinates;
};

/// The axes of the box, from the one with the largest stride on, whose places number the elements of a tensor of `size`
/// in row-major order. Nullopt where a coordinate does not.
std::optional<std::vector<size_t>> numbered_axes(const Coordinate& coordinate, const ir::Shape& box, ir::Dim size);

}  // namespace graphpipe::frontend
