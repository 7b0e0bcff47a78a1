#pragma once
// The part of a tensor that a ScatterND replaces as a whole. TorchScript writes `x[:, a:b] = y` as one, and counts the
// places out, that of each sample among them.

#include <optional>
#include <vector>

#include "ir/graph.h"

namespace graphpipe::frontend {

/// The rows first .. first + count - 1 of an axis.
struct WrittenRows {
  int64_t axis = 0, first = 0, count = 0;
};

/// The axes of which only some rows are written, where `places`, the indices of a ScatterND, are those of a box in a
/// tensor of this shape, in their order. None if they are not, or are not known.
std::optional<std::vector<WrittenRows>> written_part(const ir::Graph& graph, ir::ValueId places,
                                                     const ir::Shape& shape);

}  // namespace graphpipe::frontend
