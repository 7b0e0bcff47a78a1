#pragma once
// Seconds of single operators, from the roofline or from a profile; part of price().

#include <map>
#include <string>
#include <vector>

#include "cost/price.h"
#include "ops/op_def.h"

namespace graphpipe::cost {

/// The device's rate for this kernel, computing in this type.
FlopsPerSecond flops_per_second(const ir::Device& device, ops::Kernel kernel, ir::DType type = ir::DType::kFloat32);

/// The device's rate for weights that fit in no cache.
BytesPerSecond weight_bandwidth(const ir::Device& device);
/// Bytes of weights and gradients that a model may have for caches to hold them.
inline constexpr int64_t kCachedWeightBytes = 32 << 20;

/// A device that combines the lowest value of each property over the cluster's devices.
ir::Device slowest_device(const ir::Cluster& cluster);

/// 1, 2, 4, ... below the batch, and the batch.
std::vector<int64_t> price_points(Samples batch);

/// A table of the points, or the straight line through all of them. Needs: at least one point, in ascending order of
/// samples.
ir::SampleFunction line_or_table(std::vector<ir::SampleFunction::Point> points);

/// Bytes of a tensor as a function of the samples.
ir::SampleFunction byte_function(const ir::TensorType& type, Samples batch);

class OpPrices {
 public:
  OpPrices(const ir::Graph& graph, const ir::Cluster& cluster, const PriceRequest& request);

  /// Seconds of one node according to the roofline. Needs: the node's op has an entry.
  ir::SampleFunction analytic(ir::NodeId node) const;

  /// The profile's measurements of a forward node with its backward; null if it does not contain the node.
  const ir::PassSeconds* measured(ir::NodeId node) const;

 private:
  /// Bytes of the weights that the node reads, and of the gradients of weights that it makes.
  double weight_bytes(const ir::Node& node) const;

  const ir::Graph& graph_;
  ir::Device device_;
  /// Whether weights and their gradients are in no cache, and take time beside the arithmetic.
  bool streams_weights_ = false;
  std::vector<int64_t> points_;
  std::map<std::string, ir::PassSeconds> measured_;
};

}  // namespace graphpipe::cost
