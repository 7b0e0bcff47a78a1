#pragma once
// How the replicas of a stage that divide a micro-batch learn of each other's samples in the middle of a pass: each
// gives a few numbers, sums over its own samples, and gets those of all.

#include <span>

namespace graphpipe::runtime {

class ReplicaExchange {
 public:
  /// The numbers of all replicas, one replica after the other, for each as many as `own`, until the next call. Returns
  /// once all have come here: every replica makes the same calls in the same order. Throws RunError where one is lost.
  virtual std::span<const double> gather(std::span<const double> own) = 0;

 protected:
  ~ReplicaExchange() = default;
};

}  // namespace graphpipe::runtime
