#pragma once
// A model's own loss that is a mean over the labels that count, such as a language model's: the number that counts
// differs between micro-batches, so a mean of their means would be another loss. Divided by the counted labels of the
// whole step, the sums of micro-batches add up to the loss of the batch (docs/semantics.md, section 4).

#include <optional>
#include <vector>

#include "ir/graph.h"

namespace graphpipe::passes {

struct CountedMean {
  /// A node between a mean and the output.
  struct Step {
    ir::NodeId node;
    /// The input that its output equals, as where Python's sum() adds the first term to 0; invalid: none.
    ir::ValueId equal;
  };
  /// The means, ascending; all over the same positions, as those of a head and of an auxiliary head. The first output
  /// of each is the mean; with the attribute reduction="sum" it is the sum.
  std::vector<ir::NodeId> means;
  /// The nodes from there to the output, ascending: views, sums and differences of means, and factors that do not
  /// depend on samples.
  std::vector<Step> behind;
  ir::Loss stated;
};

/// What a mean over the labels that count states of N, if the node is one and these are at known positions of an input.
std::optional<ir::Loss> stated_by(const ir::Graph& graph, const ir::Node& mean);

/// The counted means that a scalar value adds up, each times a constant. None if it is anything else, if its means
/// count different positions, or if the labels are not elements of one input, each at its own position in its sample
/// (label_positions.h).
std::optional<CountedMean> find_counted_mean(const ir::Graph& graph, ir::ValueId value);

}  // namespace graphpipe::passes
