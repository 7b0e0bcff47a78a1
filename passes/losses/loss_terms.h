#pragma once
// A model's own loss that adds up means over different labels, such as those of several tasks, or a mean over the
// labels that count and one over all samples: each term is divided by the number of its own labels of the whole step
// that count (docs/semantics.md, section 4).

#include <optional>
#include <vector>

#include "ir/graph.h"

namespace graphpipe::passes {

struct LossTerms {
  struct Term {
    ir::ValueId value;
    /// The mean that the value is; with the attribute reduction="sum" it is the sum. Invalid: a mean over the samples,
    /// or the same for all of them.
    ir::NodeId mean;
    /// The place of its divisor in `divisors`; of a mean over the samples there is none.
    size_t divisor = 0;
  };
  /// A node between the terms and the output, and those of its inputs that are terms, or sums of terms.
  struct Step {
    ir::NodeId node;
    std::vector<size_t> inputs;
  };
  std::vector<Term> terms;
  std::vector<Step> steps;  // ascending
  /// Different from each other.
  std::vector<ir::Loss> divisors;
};

/// The terms that a scalar value adds up, each times a factor that does not depend on samples. None where no term is a
/// mean over counted labels at known positions (counted_mean.h), or where not all are of float32. Whether a term of
/// another kind is a mean over the samples at all is decided later, from operators (cost/sample_scopes.h).
std::optional<LossTerms> find_loss_terms(const ir::Graph& graph, ir::ValueId value);

}  // namespace graphpipe::passes
