#pragma once
// A device for every node of the fused graph, in any pattern, and the loads that follow, kept up move by move: one move
// costs O(tensors at the node).
//
// Example: a, b and c of 3, 1 and 2 s in a chain, tensors of 1 s between them, a and c on the first accelerator, b on
// the second: loads of 3 + 2 + 1 + 1 and 1 + 1 + 1 s, two crossings, the runs {a}, {b} and {c}. With b moved to the
// first the loads are 6 and 0 s, there is no crossing, and all is one run.

#include "partitioner/tarnawski/max_load_dp.h"

namespace graphpipe::partitioner {

/// Accelerators first, then CPUs.
using DeviceOfNode = std::vector<uint32_t>;

class Placement {
 public:
  /// Needs: a graph and options that outlive it; can_run for every node on its device.
  Placement(const MaxLoadGraph& graph, const MaxLoadOptions& options, DeviceOfNode device_of);

  uint32_t devices() const { return static_cast<uint32_t>(loads_.size()); }
  uint32_t device_of(uint32_t node) const { return device_of_[node]; }
  const DeviceOfNode& all() const { return device_of_; }
  std::span<const uint32_t> tensors_of(uint32_t node) const { return tensors_of_[node]; }
  /// Seconds of each device, as in tarnawski/max_load_dp.h.
  const std::vector<double>& loads() const { return loads_; }
  double largest_load() const;
  /// Bytes beyond the memory of accelerators, as parts of it, added up; zero where everything fits.
  double overflow() const;
  /// Of all tensors the devices that touch them, less one each.
  int64_t crossings() const { return crossings_; }

  bool is_accelerator(uint32_t device) const { return device < accelerators_; }
  bool can_run(uint32_t node, uint32_t device) const {
    return !is_accelerator(device) || graph_.nodes[node].on_accelerator;
  }
  /// Needs: can_run.
  void move(uint32_t node, uint32_t device);
  /// Adds everything up again: moves leave rounding errors.
  void refresh();

 private:
  void take(uint32_t node, uint32_t device);
  void give(uint32_t node, uint32_t device);
  uint32_t& inside(uint32_t tensor, uint32_t device) { return inside_[tensor * devices() + device]; }

  const MaxLoadGraph& graph_;
  const double memory_;
  const uint32_t accelerators_;
  DeviceOfNode device_of_;
  std::vector<std::vector<uint32_t>> tensors_of_;
  std::vector<double> loads_, bytes_;
  /// Per tensor and device, nodes of the tensor there.
  std::vector<uint32_t> inside_;
  int64_t crossings_ = 0;
};

/// A device and nodes that it runs without waiting for others in between.
struct DeviceRun {
  uint32_t device = 0;
  std::vector<uint32_t> nodes;
};

/// Cuts what each device holds into runs, in an order in which no edge leads to an earlier run: few, by taking at each
/// point all that one device can do, devices that then have nothing left first. One run for each device where the
/// placement is contiguous. Needs: acyclic edges.
std::vector<DeviceRun> runs_of(const MaxLoadGraph& graph, const DeviceOfNode& device_of);

}  // namespace graphpipe::partitioner
