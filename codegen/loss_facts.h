#pragma once
// What the runtime must know of the data and of the loss, read off the graph.

#include <string>

#include "ir/graph.h"
#include "wire/id_bounds.h"

namespace graphpipe::codegen {

/// How the loss's divisor N follows from the step's data (runtime::LossRow).
struct LossFacts {
  enum class Normalizer : uint8_t { kSamples, kCountedPositions, kOne };
  Normalizer normalizer = Normalizer::kOne;
  /// Label whose positions count, for kCountedPositions.
  ModelText label;
  int64_t ignore_index = -100;
  /// Elements per sample that also divide.
  int64_t elements_per_sample = 1;
};

/// Reads the loss that passes::attach_loss appended: a product of the summed loss and the loss scale.
LossFacts loss_facts(const ir::Graph& graph);

/// The integers that an input may hold, as far as its readers tell: rows of the table that it indexes (ONNX counts from
/// the end too, with negative ones), classes of the loss and the label that does not count. Readers of the very
/// elements of the input count, not those of what is computed from it or of a part of it. Unbounded where nothing
/// tells.
wire::IdBounds id_bounds(const ir::Graph& graph, ir::ValueId input);

}  // namespace graphpipe::codegen
