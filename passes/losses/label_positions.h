#pragma once
// Which elements of an input's samples a label consists of, where a model cuts, pads or reshapes it before its loss, as
// language models do that predict the next token:
//   labels [B, 8] -> Pad (one -100 behind) -> Slice [1, 9) -> Reshape [8*B]: elements 1 to 7 of each sample count.

#include <optional>
#include <vector>

#include "ir/graph.h"

namespace graphpipe::passes {

struct LabelPositions {
  /// Name of the input.
  ModelText input;
  /// As in ir::Loss::counted: empty if the label contains all elements.
  std::vector<wire::PositionRange> counted;
};

/// None if `label` is more than a rearrangement of elements of one input, or contains constants other than `ignored`.
std::optional<LabelPositions> label_positions(const ir::Graph& graph, ir::ValueId label, int64_t ignored);

}  // namespace graphpipe::passes
