#pragma once
// Which forward nodes work on samples together, and which add up over samples to the loss.

#include "ir/graph.h"
#include "ir/plan_graph.h"

namespace graphpipe::cost {

/// The user's choice if a model does not determine which samples are "the batch".
struct ScopeChoice {
  /// For losses that compare samples with each other, and everything else that mixes them.
  ir::SampleScope losses = ir::SampleScope::kBatch;
  /// For the statistics of normalisation.
  ir::SampleScope statistics = ir::SampleScope::kBatch;
  /// Whether no label of the data is one that a loss ignores: then a mean over the labels that count is a mean over the
  /// samples.
  bool all_labels_count = false;
};

struct SampleScopes {
  /// Scope of forward nodes; kEach for all others.
  IdMap<ir::NodeId, ir::SampleScope> scope;
  /// Whether replicas may divide the samples that the node works on together (OpDef::sums_over_replicas).
  IdMap<ir::NodeId, bool> sums_over_replicas;
  /// Minimum number of samples that the node needs together; 1 if it handles each sample alone.
  IdMap<ir::NodeId, int64_t> fewest;
  /// The nodes whose values without a batch axis are sums or means over the samples on the way to the loss, ascending:
  /// the partial results of micro-batches and replicas add up to the loss of the batch.
  std::vector<ir::NodeId> additive;
};

/// A node that produces or reads a mixed value has the scope of `choice`, unless the value is part of a loss that adds
/// up over samples (OpDef::sample_sum); one that mixes according to the dictionary (OpDef::mixes_samples) has the scope
/// of statistics. Needs: a verified graph whose nodes all have entries.
SampleScopes sample_scopes(const ir::Graph& graph, const ScopeChoice& choice);

}  // namespace graphpipe::cost
