#pragma once
// The best linear pipeline over one level of equal devices, out of given downsets: PipeDream's recurrence with one row
// of its table, windows of devices and pruning by a bound (docs/planners.md, section 2). Exact over the downsets that
// it is given.
//
// Example: nodes a, b, c of 2, 3 and 1 s in a chain, three devices, no traffic. Within 2 s at least one device and at
// most 3 - ceil(4 / 2) = 1 may lie up to the end of a; up to the end of b it is at least 3 and at most 2, so no stage
// ends there. What is left is a on one device, b and c on two: 2 s.

#include <algorithm>
#include <cmath>
#include <optional>

#include "partitioner/pipedream/priced_downsets.h"
#include "support/units.h"

namespace graphpipe::partitioner {

struct PipelineLimits {
  int devices = 1;
  double bandwidth = 1e9;
  double memory = kInfinity;
  bool replication = true, use_fewer = false;
  CostModel model;
  int64_t max_pairs = 2'500'000'000;
};

/// A stage of a pipeline: the nodes of downset `to` that are not in `from`.
struct PipelineStage {
  size_t from = 0, to = 0;
  int replicas = 1;
};

struct FoundPipeline {
  double seconds = 0;
  std::vector<PipelineStage> stages;
};

/// Of a stage between two downsets: compute and reduction over its replicas, or what crosses either of its boundaries.
inline double stage_seconds(const PricedDownsets& sets, const PipelineLimits& limits, size_t from, size_t to,
                            int replicas) {
  const double d = replicas;
  const double reduction = limits.model.reduction_factor * (d - 1) * sets.weights(from, to) / (d * limits.bandwidth);
  const double seconds = (sets.seconds(from, to) + reduction) / d;
  if (from == 0) return seconds;
  return std::max(seconds, 2 * std::max(sets.leaving(from), sets.leaving(to)) / (limits.bandwidth * d));
}

class OneLevelDp {
 public:
  OneLevelDp(const PricedDownsets& sets, const PipelineLimits& limits, Deadline& deadline)
      : sets_(sets), limits_(limits), deadline_(deadline) {}

  /// The best pipeline with a bottleneck below `max_seconds` (or equal to it, where `bound` is lower), or nothing;
  /// raises bound() from `bound`, which is proven already, as far as is proven on the way. Of pipelines that are
  /// equally good the one whose last cuts come first in the order of the downsets.
  std::optional<FoundPipeline> best(double max_seconds, double bound);
  /// No pipeline over these downsets is faster. Seconds.
  double bound() const { return bound_; }
  int64_t pairs() const { return pairs_; }
  /// Whether best() gave up because it had looked at as many pairs as it may.
  bool gave_up() const { return checks_ > limits_.max_pairs; }

 private:
  bool ended() { return gave_up() || deadline_.passed(); }
  /// Lowers `max_seconds` and raises the bound with pipelines of the fewest devices. Returns whether they meet.
  bool close_in(double& max_seconds, std::optional<FoundPipeline>& best);
  bool use_all_devices(FoundPipeline& pipeline, double max_seconds) const;
  std::optional<FoundPipeline> within(double max_seconds, double good);
  void open_windows(double max_seconds);
  void reach(size_t to, double max_seconds);
  void extend(size_t from, size_t to, int min_replicas, int max_replicas, double max_seconds);
  double stage_seconds(size_t from, size_t to, int replicas) const {
    return partitioner::stage_seconds(sets_, limits_, from, to, replicas);
  }
  bool checks_memory() const { return std::isfinite(limits_.memory) && limits_.model.memory != MemoryRule::kNone; }
  bool fits(size_t from, size_t to, int used, int replicas) const;
  int needed(double seconds, double max_seconds) const;
  double& value(size_t set, int used) { return values_[offsets_[set] + static_cast<size_t>(used - low_[set])]; }
  FoundPipeline pipeline_to_the_end();

  const PricedDownsets& sets_;
  const PipelineLimits limits_;
  Deadline& deadline_;
  double bound_ = 0;
  int64_t pairs_ = 0, checks_ = 0;
  // Of each downset: the numbers of devices that may lie before it, and the least replicas that its traffic needs.
  std::vector<int> low_, high_, traffic_replicas_;
  std::vector<size_t> offsets_, alive_;
  std::vector<double> values_;
  // A value up to good_ is good enough; open_ counts the entries of the current downset that are still above it.
  double good_ = 0;
  int open_ = 0;
};

}  // namespace graphpipe::partitioner
