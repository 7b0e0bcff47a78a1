#pragma once
// Downsets with what a linear pipeline costs at them: PipeDream's states (SOSP 2019; docs/planners.md, section 2).

#include "partitioner/cost_models/cost_model.h"
#include "partitioner/cost_models/unit_prices.h"
#include "partitioner/graph/downsets.h"

namespace graphpipe::partitioner {

/// Ordered by work, then by size: a downset comes after those that it includes. The first is empty, the last is full.
class PricedDownsets {
 public:
  /// Needs: `sets` holds the empty and the full set. `rule`: which bytes leave a downset.
  PricedDownsets(const UnitPrices& prices, const SetTable& sets, TrafficRule rule);

  size_t size() const { return sets_.size(); }
  const SetTable& sets() const { return sets_; }
  bool includes(size_t larger, size_t smaller) const { return sets_.includes(larger, smaller); }
  /// Seconds of all members. Whole multiples of one quantum that is a power of two, so that sums do not depend on the
  /// order of the layers.
  double seconds(size_t set) const { return static_cast<double>(ticks_[set]) * quantum_; }
  double seconds(size_t from, size_t to) const { return static_cast<double>(ticks_[to] - ticks_[from]) * quantum_; }
  double weights(size_t from, size_t to) const { return weights_[to] - weights_[from]; }
  double outputs(size_t from, size_t to) const { return outputs_[to] - outputs_[from]; }
  /// Bytes that leave the downset.
  double leaving(size_t set) const { return leaving_[set]; }
  /// The layers of `to` that are not in `from`, ascending.
  std::vector<uint32_t> stage(size_t from, size_t to) const;

 private:
  SetTable sets_;
  double quantum_ = 1;
  std::vector<int64_t> ticks_;
  std::vector<double> weights_, outputs_, leaving_;
};

/// Errors (kLimitExceeded): the original's rule for cuts (quirk PD2) takes a table of the square of the layers, and
/// there are too many.
Status check_boundary_rule(const UnitPrices& prices, TrafficRule rule);

/// A power of two that divides sums of these seconds finely: any sum of all of them stays below 2^61 of it.
double quantum_of(const UnitPrices& prices);

/// The downsets that PipeDream's program reaches from the first source of the file, with the empty and the full one
/// (quirk PD6). Returns false where `max_bytes` or the deadline ended it.
bool add_downsets_of_first_source(const Dag& dag, size_t max_bytes, const Deadline& deadline, SetTable& sets);

}  // namespace graphpipe::partitioner
