#pragma once
// The loss as data: what a graph states of the loss that it computes.
//
// The output of role kLoss is S * s: S is the sum over what counts in a micro-batch, s the input of role kLossScale,
// 1/N of the whole step. Passes that attach a loss state how N follows from the step's data; nobody else needs to know
// which operators compute S. A loss whose terms are means over different labels is S * s + S1 * s1 + ..: then the input
// holds s and the s of every term.

#include <optional>
#include <vector>

#include "support/text.h"
#include "wire/loss.h"

namespace graphpipe::ir {

struct Loss {
  wire::LossNormalizer normalizer = wire::LossNormalizer::kSamples;
  /// What a sample adds to N, for kSamples; else 1.
  int64_t elements_per_sample = 1;
  /// The input whose positions count, for kCountedPositions; else empty. It holds integers and has a batch axis.
  ModelText label;
  /// The label that does not count.
  std::optional<int64_t> ignore_index;
  /// The elements of a label's sample that can count, ascending, apart and not empty, in row-major order with the batch
  /// axis in front; all of them where there is none.
  std::vector<wire::PositionRange> counted;
  /// Terms that are divided by an N of their own, none of which has terms.
  std::vector<Loss> terms;
  /// Whether the loss compares samples with each other: then its pieces do not add up, whatever its operators say.
  bool compares_samples = false;
  bool operator==(const Loss&) const = default;
};

}  // namespace graphpipe::ir
