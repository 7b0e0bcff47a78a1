#include "scheduler/lowering/trained_replicas.h"

#include "scheduler/lowering/insert_transfers.h"

namespace graphpipe::scheduler {

std::map<ir::DeviceId, std::vector<TrainedReplica>> trained_replicas(const StageGraph& graph) {
  const IdMap<StageId, int> groups = reduction_groups(graph);
  std::map<ir::DeviceId, std::vector<TrainedReplica>> trained;
  for (const StageId stage : graph.stage_ids()) {
    if (!graph.stages[stage].is_trained()) continue;
    const auto& devices = graph.stages[stage].choice.devices;
    for (int replica = 0; replica < static_cast<int>(devices.size()); ++replica)
      trained[devices[static_cast<size_t>(replica)]].push_back({stage, replica, groups[stage]});
  }
  return trained;
}

}  // namespace graphpipe::scheduler
