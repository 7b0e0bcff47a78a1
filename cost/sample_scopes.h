#pragma once
// Which forward nodes work on samples together, and which add up over samples to the loss.

#include "ir/graph.h"
#include "ir/plan_graph.h"

namespace graphpipe::cost {

/// What the user means where a model does not say which samples are "the batch".
struct ScopeChoice {
  /// Of losses that compare samples with each other, and of all else that mixes them.
  ir::SampleScope losses = ir::SampleScope::kBatch;
  /// Of the statistics of normalisation.
  ir::SampleScope statistics = ir::SampleScope::kBatch;
};

struct SampleScopes {
  /// Of forward nodes; kEach for all others.
  IdMap<ir::NodeId, ir::SampleScope> scope;
  /// Samples that the node needs together; 1 where it takes each alone.
  IdMap<ir::NodeId, int64_t> fewest;
  /// The nodes whose values without a batch axis are sums or means over the samples on the way to the loss, ascending:
  /// the pieces of micro-batches and replicas add up to the loss of the batch.
  std::vector<ir::NodeId> additive;
};

/// A node that makes or reads a mixed value has the scope of `choice`, unless the value is part of a loss that adds up
/// over samples (OpDef::sample_sum); one that the dictionary says mixes (OpDef::mixes_samples) has that of statistics.
/// Needs: a verified graph whose nodes all have rows.
SampleScopes sample_scopes(const ir::Graph& graph, const ScopeChoice& choice);

}  // namespace graphpipe::cost
