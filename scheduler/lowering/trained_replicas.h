#pragma once
// Which device trains what: the replicas of stages that get an update there.

#include <map>
#include <vector>

#include "scheduler/terms.h"

namespace graphpipe::scheduler {

struct TrainedReplica {
  StageId stage;
  int replica = 0;
  int group = -1;  // that it reduces its gradients in, -1: none
};

/// The trained replicas of each device, ascending by stage; devices without any are absent.
std::map<ir::DeviceId, std::vector<TrainedReplica>> trained_replicas(const StageGraph& graph);

}  // namespace graphpipe::scheduler
