#include "cost/update_time.h"

#include <algorithm>

namespace graphpipe::cost {

UpdateWork update_work(const ir::Stage& stage) {
  return {.tensors = static_cast<double>(stage.trainable_tensors),
          .bytes = static_cast<double>(stage.updated_weight_bytes.count),
          .flops = stage.update_flops};
}

Seconds update_time(const UpdateWork& work, double traffic, const ir::Cluster& cluster, ir::DeviceId device) {
  const ir::RuntimeCosts& costs = cluster.runtime;
  if (costs.update_tensor.count > 0 || costs.update_byte > 0)
    return Seconds(work.tensors * costs.update_tensor.count + work.bytes * costs.update_byte);
  const ir::Device& own = cluster.devices[device];
  const double products = work.flops > 0 ? work.flops / own.compute.count : 0;
  return Seconds(traffic * work.bytes / own.memory_bandwidth.count + products);
}

Seconds update_of_all(const ir::PlanGraph& graph, const ir::Cluster& cluster) {
  UpdateWork work;
  for (const ir::WeightGroup& group : graph.weight_groups) {
    if (!group.trainable) continue;
    ++work.tensors;
    work.bytes += static_cast<double>(group.bytes.count);
    work.flops += group.update_flops;
  }
  Seconds slowest;
  for (const ir::DeviceId device : ids<ir::DeviceId>(cluster.devices.size()))
    slowest = std::max(slowest, update_time(work, graph.update_traffic, cluster, device));
  return slowest;
}

Seconds update_time(const ir::StageGraph& graph, const ir::Cluster& cluster, ir::StageId id) {
  const ir::Stage& stage = graph.stages[id];
  if (!stage.is_trained()) return Seconds(0);
  Seconds slowest;
  for (const ir::DeviceId device : stage.choice.devices)
    slowest = std::max(slowest, update_time(update_work(stage), graph.update_traffic, cluster, device));
  return slowest;
}

}  // namespace graphpipe::cost
