#pragma once
// How a planner of another project counts time, traffic, gradient reductions and memory, as a record: one evaluator
// (plan_price.h) and one independent check (independent_score.h) read it. Each planner's folder has its own.

#include <cstdint>

#include "support/integer_math.h"

namespace graphpipe::partitioner {

/// How a planner puts one number on a plan.
enum class Score : uint8_t {
  kBottleneck,  // the largest stage time (plan_price.h)
  kDapple,      // speed-up of one synchronous iteration (dapple/planner.h)
  kBlocks,      // the heaviest block of rounded microseconds (torchgpipe/planner.h)
  kIteration,   // sum of stage times and (micro-batches - 1) times the largest
  kThroughput,  // units of profiled work per second: 1 / the largest stage time
};

/// How stage time is made of compute, traffic and gradient reduction.
enum class Overlap : uint8_t {
  kAdd,  // compute + reduction + traffic (Piper, Tarnawski)
  kMax,  // the larger of compute + reduction and of each direction's traffic (PipeDream)
  /// The larger of compute + traffic and of the reduction, which runs beside the micro-batches (PipeDream-2BW).
  kMaxWithReduction,
};

/// Which bytes between stages a stage is charged for.
enum class TrafficRule : uint8_t {
  kNone,
  /// At each boundary of the pipeline: every tensor of the layers before it that some layer behind it reads, once.
  kBoundaryTensors,
  /// The same in PipeDream's form: also tensors of forks whose readers are all before the boundary, as far as one of
  /// them is not before the same last layer (quirk PD2).
  kBoundaryAntichain,
  /// Every edge into or out of the stage, twice, with its synchronisation bytes (Piper).
  kStageEdges,
  /// Every tensor that enters or leaves the stage, once, at the producer's transfer_seconds (Tarnawski).
  kStageTransfers,
  /// What the stage receives: every tensor from another stage once, and the gradient of every tensor that it sends from
  /// each stage that reads it. A tensor is as large as the largest of its edges into the stage (PipeDream-2BW).
  kStageMessages,
};

/// What a stage holds.
enum class MemoryRule : uint8_t {
  kNone,  // memory is not looked at
  /// Copies of weights and outputs for what is in flight: ceil(devices of the stages behind / replicas) (quirk PD8),
  /// or, as the runtime keeps them, with the stage's own devices counted.
  kCopiesBehind,
  kCopiesFrom,
  kVariants,        // sum of a ceil(s / d) + b over the variants, s = devices / degree from this stage on (Piper)
  kSharedVariants,  // sum of a n / d + b, n = stages from this one on (Alpa: d share each micro-batch)
  kMeasured,        // sum of the nodes' memory_bytes (Tarnawski)
  /// 2 w + n a, n = stages of the pipeline: two versions of the weights, each stage with as many micro-batches in
  /// flight as the first. A stage that recomputes: 2 w + a + n times the tensors that enter it. Of layers with variants
  /// the measured b for 2 w and a per micro-batch, at least the tensors that enter where a recomputing one is chosen
  /// (PipeDream-2BW).
  kTwoVersions,
};

/// Copies that a stage on `replicas` devices holds by kCopiesBehind or kCopiesFrom, with so many devices in the stages
/// behind it.
inline int copies_held(MemoryRule rule, int devices_behind, int replicas) {
  return ceil_div(rule == MemoryRule::kCopiesFrom ? devices_behind + replicas : devices_behind, replicas);
}

struct CostModel {
  Score score = Score::kBottleneck;
  Overlap overlap = Overlap::kMax;
  TrafficRule traffic = TrafficRule::kBoundaryTensors;
  MemoryRule memory = MemoryRule::kCopiesFrom;
  /// Seconds of traffic and reduction per second of the exact division by the bandwidth: 1, or the unit of the file's
  /// times where the original mixes units (quirk P5).
  double communication_scale = 1;
  /// PipeDream-2BW: what moves between devices goes over the innermost level that holds them; between two stages as
  /// fast as between the replicas with the same number that are farthest apart. Off: over the first level.
  bool level_of_devices = false;
  /// The reduction moves `reduction_factor` (d - 1) / d bytes per byte of weight over d replicas.
  double reduction_factor = 4;
  /// Micro-batches over which one reduction is spread; 0: over the replicas, as the stage's work is.
  int64_t reduction_every = 0;
  /// PipeDream: each boundary of a pipeline is paid by the stage behind it and, unless that is the first, by the
  /// stage before it. On (quirk PD3): the last stage of a group pays what leaves the group here too, although the level
  /// outside charges it already.
  bool group_end_pays_twice = false;
  /// PipeDream: links of a group of devices work in parallel. Off (quirk PD4): only for the first stage of a level.
  bool parallel_links_everywhere = true;
  /// PipeDream: a group has as many links as devices. Off (quirk PD5): as units of the level below.
  bool links_of_all_levels = true;
  /// Stages with the same devices count as one: what crosses between them is free, and each of them has the price of
  /// all. Not for the boundary rules.
  bool pools_devices = false;
  /// kDapple: the copies of the pipeline that a stage's devices belong to, and how many times the bytes of a cut count
  /// in the slowest stage.
  int pipeline_copies = 1;
  double traffic_factor = 2;
};

}  // namespace graphpipe::partitioner
