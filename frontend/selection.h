#pragma once
// What a mask picks. NonZero has as many coordinates as its mask has nonzero places, a number that no shape can
// express.
//
// Nothing is actually picked: a value read at the coordinates keeps all places of the mask, those that were not picked
// hold ones, and whatever combines the places (a reduction, a scatter) excludes them. So every sample stays in its
// place, and shapes stay those of the mask. In the file's shapes the number of picked places is a separate symbolic
// dim, like the batch.

#include <cstdint>
#include <optional>
#include <vector>

#include "frontend/known.h"
#include "ir/graph.h"

namespace graphpipe::frontend {

/// The selection of one NonZero.
struct Selection {
  /// Booleans of shape `box`.
  ir::ValueId mask;
  ir::Shape box;
  /// The operand of NonZero: the mask, or numbers of another type.
  ir::ValueId given;
};

/// The number of places that selection `index` picks. Divided by the batch it is the number in each sample.
ir::Dim picked_places(size_t index, const ir::Shape& box);
/// Whether a dim or number counts picked places.
bool counts_places(ir::Dim dim);
bool counts_places(const Number& number);
bool counts_places(const ir::Shape& shape);
/// Its selection. Needs: counts_places.
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
    /// One row per place: in `Binding::value` the axes of the box replace the axis.
    kRows,
    /// The first rows of `Binding::value`, as many as there are places.
    kFirstRows,
  };
  Kind kind = Kind::kCoordinates;
  size_t selection = 0;
  /// The axis of the binding's type.
  size_t axis = 0;
  /// For rows: the number of leading axes of the box that the type itself has, right before `axis`.
  size_t outer = 0;
  /// For rows: how many axes after those of the box are merged with `axis` in the file.
  size_t inner = 0;
  /// For coordinates: in row-major order over the other axes; one may represent all. Empty if only the shape is known.
  std::vector<Coordinate> coordinates;
};

/// The axes of the box, in order of descending stride, whose places number the elements of a tensor of `size` in
/// row-major order. Nullopt if the coordinate does not do that.
std::optional<std::vector<size_t>> numbered_axes(const Coordinate& coordinate, const ir::Shape& box, ir::Dim size);

}  // namespace graphpipe::frontend
