#pragma once
// Closed-form time of one step: warm-up, steady state, drain, gradient reduction and update. It uses the same longest
// paths as the lower bound of a plan (lower_bound.h), with the period that the in-flight numbers sustain.
//
// Example: a feeds b, forward and backward 1 s each, four micro-batches. b starts after 1 s and works 4 * 2 s, and a's
// last backward takes 1 s more: 10 s.
//
// A link (ir::LinkId) carries all of its messages, those of all replicas where it joins two hosts, after the
// first that can be sent and before what follows the last.
//
// A device with several stages works for all of them, after the first that can start and before what follows the last.
// Of P devices with v equal stages each, M micro-batches take (M v + P - 1) items, as Narayanan et al., Efficient
// Large-Scale Language Model Training on GPU Clusters Using Megatron-LM, SC 2021, section 2.2, have it.

#include "cost/in_flight.h"

namespace graphpipe::cost {

/// Seconds from the start of the step until a stage can start its first item, and from its last item until every stage
/// that feeds it is done. The first item of a stage with larger micro-batches needs several of its producer's. `items`:
/// samples of each stage's first and last item.
struct Ramps {
  double head = 0, tail = 0;
};
IdMap<ir::StageId, Ramps> ramps(const ir::StageGraph& graph, const IdMap<ir::StageId, StageCost>& costs,
                                const IdMap<ir::StageId, int64_t>& items);

struct IterationTime {
  double warm_up = 0;  // until the limiting stage starts
  double steady = 0;   // its items
  double drain = 0;    // until all are done
  double reduce = 0;   // gradients of replicas and of weights that several stages share, not hidden by the drain
  double update = 0;   // of weights, not hidden by the drain
  /// The stage that the longest path goes through, of which all of the above are; of a device with several stages, that
  /// with the most work.
  ir::StageId limiting;
  /// A stage of the device that works longest, and how long that is. The longest path may go through another stage.
  ir::StageId busiest;
  double busiest_seconds = 0;
  /// Where the longest path is that of a link between groups of devices (link_loads.h): how long it is busy, which is
  /// `steady` then, and the stages between which most of that goes.
  double link_seconds = 0;
  ir::StageId link_from, link_to;
  /// Whether the plan fits the devices' memory (cost::in_flight).
  bool fits = true;
  /// Memory holds fewer samples in flight than the slowest stage could keep up with.
  bool slowed_by_memory = false;
  double total() const { return warm_up + steady + drain + reduce + update; }
};

IterationTime iteration_time(const ir::StageGraph& graph, const ir::Cluster& cluster);

}  // namespace graphpipe::cost
