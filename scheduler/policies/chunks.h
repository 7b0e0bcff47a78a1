#pragma once
// Chains whose stages are chunks of ranks: what interleaved and V-shaped schedules are defined on.

#include "scheduler/policies/policies.h"
#include "scheduler/policies/two_streams.h"

namespace graphpipe::scheduler {

struct Chunks {
  int ranks = 0;
  int chunks = 0;  // per rank, v
  int64_t micro_batches = 0;
  /// Per rank, in the order in which the ranks appear along the chain: its stages, ascending.
  std::vector<std::vector<StageId>> stages;
  std::vector<ir::DeviceId> devices;
};

/// Whether every stage but the first reads the stage before it, and nothing else.
bool is_chain(const StageGraph& graph);

/// Errors (kBadPlan): the stages are no chain, have replicas or unequal micro-batch sizes, a stage has no backward, or
/// their devices do not follow the shape. Needs: kLoop or kV.
Result<Chunks> chunks_of(const StageGraph& graph, ir::StageShape shape, std::string_view policy);

/// The action of micro-batch number `index` on a stage with one replica.
Action chunk_action(const StageGraph& graph, ActionOp op, StageId stage, int64_t index);

/// A V's two chunks on one rank, each with all micro-batches.
std::array<MicroBatchStream, 2> chunk_streams(const Chunks& chunks, size_t rank);

/// Puts the ranks' lists into a schedule, ascending by device.
Schedule schedule_of_ranks(const Chunks& chunks, std::vector<std::vector<Action>> lists, std::string_view policy);

}  // namespace graphpipe::scheduler
