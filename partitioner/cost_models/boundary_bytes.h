#pragma once
// Bytes that leave a downset of layers: what PipeDream's planner charges the stages at both ends of a cut for.

#include <span>

#include "partitioner/cost_models/cost_model.h"
#include "partitioner/cost_models/unit_prices.h"
#include "support/digraph.h"

namespace graphpipe::partitioner {

class BoundaryBytes {
 public:
  /// Needs: kNone, kBoundaryTensors or kBoundaryAntichain; of the last one, a table of the square of the layers fits.
  /// Both outlive it.
  BoundaryBytes(const UnitPrices& prices, const Dag& dag, TrafficRule rule);

  /// `set`: bits of the layers, a downset. kBoundaryTensors: the outputs that a layer outside reads. kBoundaryAntichain
  /// (quirk PD2): a last layer x is charged itself and each layer before it that something which is not before x reads.
  double of(std::span<const uint64_t> set) const;

 private:
  double of_antichain(std::span<const uint64_t> set) const;

  const UnitPrices& prices_;
  const Dag& dag_;
  const TrafficRule rule_;
  /// Under kBoundaryAntichain: what each layer is charged as a last one.
  BitRows charged_;
};

}  // namespace graphpipe::partitioner
