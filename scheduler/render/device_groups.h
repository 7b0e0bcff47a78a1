#pragma once
// Which devices a picture shows as one: of many devices most are replicas that do the same.

#include <string>
#include <vector>

#include "scheduler/lowering/items.h"
#include "scheduler/simulate/timeline.h"

namespace graphpipe::scheduler {

/// Positions in Schedule::programs, ascending; the first stands for all.
struct DeviceGroup {
  std::vector<size_t> programs;
};

/// Every device by itself where there are at most so many. Else devices that compute the same stages in the same order
/// are one group, where the micro-batches are the same or the times are: replicas share micro-batches or take turns
/// with them. Groups are in the order of their first devices.
std::vector<DeviceGroup> device_groups(const StageGraph& graph, const Schedule& schedule, const Timeline& timeline,
                                       size_t max_apart = 16);

/// By ir::device_names.
std::string device_names(const Schedule& schedule, const DeviceGroup& group);

/// The stages that a program computes, ascending.
std::vector<size_t> stages_of(const ir::Program& program);

}  // namespace graphpipe::scheduler
