#pragma once
// A model's own loss that is a mean over the labels that count, such as a language model's: how many count differs from
// micro-batch to micro-batch, so a mean of their means would be another loss. Divided by the counted labels of the
// whole step, the sums of micro-batches add up to the loss of the batch (docs/semantics.md, section 4).

#include <optional>
#include <vector>

#include "ir/graph.h"

namespace graphpipe::passes {

struct CountedMean {
  /// Its first output is the mean; with the attribute reduction="sum" it is the sum.
  ir::NodeId node;
  /// The nodes from there to the output, in order: views, and factors that no sample changes.
  std::vector<ir::NodeId> behind;
  ir::Loss stated;
};

/// The counted mean that a scalar value is a constant multiple of. None where there is no such mean, or where its
/// labels are not elements of one input, each at a place of its own in its sample (label_positions.h).
std::optional<CountedMean> find_counted_mean(const ir::Graph& graph, ir::ValueId value);

}  // namespace graphpipe::passes
