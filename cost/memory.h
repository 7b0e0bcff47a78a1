#pragma once
// Peak memory of a plan: bytes that the stages' programs allocate (docs/semantics.md, section 5), not the resident set
// of a process.

#include <algorithm>

#include "ir/cluster.h"
#include "ir/stage_graph.h"

namespace graphpipe::cost {

/// What crosses a stage's boundary: edges into it, edges out of it, and among those one for each value.
struct StageBoundary {
  std::vector<ir::EdgeId> in, out, distinct_out;
};
IdMap<ir::StageId, StageBoundary> boundaries(const ir::StageGraph& graph);

/// Bytes of one item, on one replica: the formulas on which both the memory of a plan (below) and of a schedule
/// (scheduler/memory/memory.h) are based. A boundary value that is also in the stash is counted as input or output.
struct ItemBytes {
  Bytes stash;           // from the forward (from R if the stage recomputes) to the input gradient
  Bytes kept;            // from the input gradient to the weight gradient
  Bytes kept_gradients;  // the part of `kept` that the input gradient allocates while the stash is still held
  Bytes workspace;
  // From the forward, and from the input gradient, to the item's last action; what a stage of a chain passes on is
  // counted where it enters.
  Bytes outputs;
  Bytes gradients_of_inputs;
};
ItemBytes item_bytes(const ir::StageGraph& graph, const StageBoundary& boundary, ir::StageId stage, Samples samples);
/// Rounded to the nearest byte; absurd prices saturate instead of overflowing.
Bytes bytes_at(const ir::SampleFunction& price, Samples samples);

/// Bytes on one replica, as far as they follow from the stage alone.
struct MemoryParts {
  Bytes weights;    // with buffers
  Bytes gradients;  // one accumulator per trainable weight
  Bytes optimizer;  // divided over the replicas if the state is sharded
  Bytes versions;   // of trained weights, all but the newest
  Bytes stash;      // activations of all items in flight, with their inputs and outputs
  /// While an item runs: the largest extra memory of a node, the gradients that its weight gradient reads, and the
  /// stash of a stage that recomputes.
  Bytes working;
  /// One item of the gradient of each value that crosses the stage's boundary.
  Bytes boundary;
  /// In addition to the gradients while they are reduced, when no item is left: reduction_bytes.
  Bytes reduction;
  /// While the optimizer's step runs, beside the stash where items are in flight then.
  Bytes update;
  Bytes total() const {
    return weights + gradients + optimizer + versions + std::max({stash + working + boundary, reduction, update});
  }
};

/// What each replica of a stage holds in addition to its gradients while they are reduced: the bucket that small
/// gradients are copied into, or the chunks that arrive from its neighbour (runtime/collectives; those of float32 on
/// hosts take none), then the copies of its shared weights from other stages.
Bytes reduction_bytes(const ir::StageGraph& graph, ir::StageId stage);

/// `in_flight`: samples between forward and backward in all replicas of the stage together. Of a graph whose stages
/// hold the versions of the first one, the least: by what this stage has in flight.
MemoryParts stage_memory(const ir::StageGraph& graph, ir::StageId stage, Samples in_flight);

/// Peak bytes of each device of the cluster, never less than those of the kFkB schedule with these numbers: the sum,
/// over the stages that it holds, of stage_memory and of what neighbours send ahead. At most what a producer has in
/// flight is buffered as inputs (the whole batch if no gradient holds the producer back), and at most what the stage
/// has in flight as gradients; those of a single reader with micro-batches no larger than ours arrive as its own
/// in-flight number allows. Other policies may hold more: GPipe's has the batch in flight, and zero-bubble orders delay
/// weight gradients.
IdMap<ir::DeviceId, Bytes> peak_memory(const ir::StageGraph& graph, const ir::Cluster& cluster,
                                       const IdMap<ir::StageId, Samples>& in_flight);

/// Bytes that the worst device lacks; zero or less if the plan fits.
Bytes memory_shortfall(const ir::StageGraph& graph, const ir::Cluster& cluster,
                       const IdMap<ir::StageId, Samples>& in_flight);

}  // namespace graphpipe::cost
