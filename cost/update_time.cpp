#include "cost/update_time.h"

#include <algorithm>

namespace graphpipe::cost {

UpdateWork update_work(const ir::Stage& stage) {
  const double parts = stage.choice.shard_optimizer_state ? static_cast<double>(stage.choice.devices.size()) : 1;
  return {.tensors = static_cast<double>(stage.trainable_tensors),  // of each a part
          .bytes = static_cast<double>(stage.updated_weight_bytes.count) / parts,
          .traffic = stage.update_traffic / parts,
          .flops = stage.update_flops / parts};
}

Seconds update_time(const UpdateWork& work, const ir::Cluster& cluster, ir::DeviceId device) {
  const ir::RuntimeCosts& costs = cluster.runtime;
  const ir::Device& own = cluster.devices[device];
  const double products = work.flops > 0 ? work.flops / own.compute.count : 0;
  if (costs.update_tensor.count > 0 || costs.update_byte > 0)
    return Seconds(work.tensors * costs.update_tensor.count + work.bytes * costs.update_byte +
                   (costs.products_apart ? products : 0));
  return Seconds(work.traffic / own.memory_bandwidth.count + products);
}

Seconds exchange_time(const ir::Cluster& cluster, const ir::Stage& stage) {
  const Seconds reduction = all_reduce_time(cluster, stage.choice.devices, stage.trainable_weight_bytes);
  return stage.choice.shard_optimizer_state ? (1 + kHandOut) * reduction : reduction;
}

Seconds update_of_all(const ir::PlanGraph& graph, const ir::Cluster& cluster) {
  UpdateWork work;
  for (const ir::WeightGroup& group : graph.weight_groups) {
    if (group.trainable) work.add(group, group.bytes);
  }
  Seconds slowest;
  for (const ir::DeviceId device : ids<ir::DeviceId>(cluster.devices.size()))
    slowest = std::max(slowest, update_time(work, cluster, device));
  return slowest;
}

Seconds update_time(const ir::StageGraph& graph, const ir::Cluster& cluster, ir::StageId id) {
  const ir::Stage& stage = graph.stages[id];
  if (!stage.is_trained()) return Seconds(0);
  Seconds slowest;
  for (const ir::DeviceId device : stage.choice.devices)
    slowest = std::max(slowest, update_time(update_work(stage), cluster, device));
  return slowest;
}

}  // namespace graphpipe::cost
