#pragma once
// In-flight numbers: how many samples a stage must hold between forward and backward so that the pipeline never
// starves. One function for both the planner's memory and the scheduler (docs/semantics.md, section 5).
//
// The rule is the cycle argument for strict alternation of forwards and backwards, in sample units. A steady-state
// cycle goes down from s with forwards, turns in a descendant t, and comes back up. With T the period (seconds per
// sample), r = k b the round of a stage and c the seconds of all its work on one sample's share of an item:
//
//   reach(s) = r(s) c(s) / T + max over readers j of ( wait(s, j) + hops(s) / T + turnaround(j) )
//   n(s)     = the smallest multiple of b(s) not below reach(s), r(s) and, for each reader j,
//              n(j) + r(s) - gcd(r(s), r(j))      (less would deadlock)
//   turnaround(j)  = max( n(j) - r(j) + r(j) c(j) / T,  reach(j) )
//   wait(s, j) = max(0, r(j) - r(s))        a reader with larger rounds waits for several of ours
//
// With equal rounds this is n(s) = max over t of n(t) - 1 + ceil(Q(s, t) / T) in items; with equal costs, no latency
// and rounds that differ it is GraphPipe's n(s) = max over j of ceil_b(n(j) + max(r(s), r(j))).
//
// Example: a feeds b, each 2 s a sample forward and backward, b = k = 1, T = 2 s. b: reach 1, n = 1, turnaround 1.
// a: reach 1 + 1 = 2, n = 2. With messages of 0.5 s each way its reach is 2.5 and n = 3.

#include <algorithm>
#include <span>
#include <vector>

#include "cost/stage_cost.h"

namespace graphpipe::cost {

/// One stage as seen by the rule.
struct InFlightStage {
  int64_t micro_batch = 1;
  int k = 1;
  /// Seconds of forward and backward of one item, over the samples of a micro-batch.
  double seconds_per_sample = 0;
  /// Seconds of one message down plus one message up, between an item and its readers'.
  double hop_seconds = 0;
  /// Minimum number of micro-batches per round: the number of replicas under round robin, which hold one each,
  /// otherwise 1.
  int parallel_items = 1;
  int64_t round() const { return micro_batch * k * parallel_items; }
};

/// What a stage upstream must know about one downstream.
struct InFlightDemand {
  int64_t samples = 0;  // n
  double turnaround = 0;
  int64_t round = 1;
};

/// The rule for one stage, given its readers (none for a sink). `period` is seconds per sample, above zero; infinity
/// gives the minimum number of samples that does not deadlock. Not above `batch` rounded up to whole micro-batches.
InFlightDemand in_flight_demand(const InFlightStage& stage, std::span<const InFlightDemand> readers, double period,
                                int64_t batch);

InFlightStage in_flight_stage(const ir::StageChoice& choice, const StageCost& cost);

/// In-flight samples of every stage at a target period.
IdMap<ir::StageId, Samples> in_flight_at(const ir::StageGraph& graph, const IdMap<ir::StageId, StageCost>& costs,
                                         double period);

struct InFlightPlan {
  IdMap<ir::StageId, Samples> samples;
  /// The steady-state period, in seconds per sample, that the numbers sustain.
  double period = 0;
  /// That which the stages and links would sustain if memory allowed it.
  double fastest = 0;
  double slowdown() const { return std::max(1.0, period / fastest); }
  /// Whether they fit the devices' memory.
  bool fits = true;
};

/// The numbers to schedule with: those of the rule, raised if a cycle of waits is longer than the period
/// (cycle_period.h); at the bottleneck period if memory allows, otherwise at the smallest period (within 0.1 %) whose
/// numbers fit, otherwise (fits is false) the minimum that does not deadlock.
InFlightPlan in_flight(const ir::StageGraph& graph, const ir::Cluster& cluster);
/// The same, where the costs of all stages and their bottleneck_period() are known.
InFlightPlan in_flight(const ir::StageGraph& graph, const ir::Cluster& cluster,
                       const IdMap<ir::StageId, StageCost>& costs, double bottleneck);

}  // namespace graphpipe::cost
