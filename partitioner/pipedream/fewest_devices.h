#pragma once
// The fewest devices that a linear pipeline takes within a bottleneck: one number per downset instead of one per
// downset and devices used (docs/planners.md, section 2). Says at once that no pipeline of a given number of devices
// meets a bottleneck.
//
// Example: nodes a, b, c of 2, 3 and 1 s in a chain, within 2 s. Up to a: 1 device; up to b: 1 + ceil(3 / 2) = 3; up to
// c: the smaller of 1 + ceil(4 / 2) and 3 + 1, which is 3.

#include "partitioner/pipedream/one_level_dp.h"

namespace graphpipe::partitioner {

class FewestDevices {
 public:
  /// Memory is not looked at.
  FewestDevices(const PricedDownsets& sets, const PipelineLimits& limits, Deadline& deadline)
      : sets_(sets), limits_(limits), deadline_(deadline) {}

  /// A pipeline with stages of at most `max_seconds` on as few devices as there is one for; nothing where that is more
  /// than the limits have, or where the deadline or the limit of pairs ended the search.
  std::optional<FoundPipeline> within(double max_seconds);
  bool ended() const { return ended_; }
  int64_t pairs() const { return pairs_; }
  /// Pairs that were looked at, whether nested or not.
  int64_t checks() const { return checks_; }

 private:
  /// Downsets that take the same number of devices, by work; their words lie side by side.
  struct Bucket {
    std::vector<double> seconds;
    std::vector<uint32_t> set;
    std::vector<int> traffic_replicas;
    BitWords words;
  };
  struct Step {
    uint32_t from = 0;
    int replicas = 0;
    /// Devices up to the downset; more than there are where no pipeline ends at it.
    int used = 0;
  };
  void start(double max_seconds);
  void reach(size_t to);
  void try_bucket(size_t to, int used);
  void append(size_t set, int used);
  /// Replicas that some part of the time needs.
  int needed(double seconds) const;

  const PricedDownsets& sets_;
  const PipelineLimits& limits_;
  Deadline& deadline_;
  double max_seconds_ = 0, inverse_ = 0;
  std::vector<int> traffic_replicas_;
  std::vector<Step> steps_;
  std::vector<Bucket> buckets_;
  bool ended_ = false;
  int64_t pairs_ = 0, checks_ = 0;
};

}  // namespace graphpipe::partitioner
