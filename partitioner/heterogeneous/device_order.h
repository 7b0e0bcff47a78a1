#pragma once
// Which device gets which stage (the heaviest cut on the fastest link, devices of unequal speed and memory). A stage's
// price follows from its devices (ir/stage_graph.h), so each placement is a plan of its own.

#include <vector>

#include "ir/cluster.h"
#include "ir/stage_graph.h"

namespace graphpipe::partitioner {

/// Whether devices differ in speed or memory.
bool devices_differ(const ir::PlanGraph& graph, const ir::Cluster& cluster);

/// By device a number that is equal where speed and memory are.
std::vector<int> device_classes(const ir::PlanGraph& graph, const ir::Cluster& cluster);

/// Devices, the fastest first; of equally fast ones those with more memory, then the lower number.
std::vector<ir::DeviceId> by_speed(const ir::PlanGraph& graph, const ir::Cluster& cluster);

/// Gives nodes that are priced by kinds of devices the prices of one kind, by which searches go.
void take_prices_of(ir::PlanGraph& graph, int kind);

/// Devices in the order of the stages, each stage as many as it has.
void place_in_order(ir::Assignment& plan);

/// Other placements of a plan that are worth a try: where devices differ, the busiest stages on the fastest devices,
/// and those that need most memory on the devices that have most; where links differ, stages that exchange most next to
/// each other. Needs: the plan has no more replicas than there are devices; `stages` is its stage graph.
std::vector<ir::Assignment> other_placements(const ir::PlanGraph& graph, const ir::Cluster& cluster,
                                             const ir::StageGraph& stages, const ir::Assignment& plan);
/// How many those are, where devices differ.
size_t max_other_placements(const ir::Cluster& cluster);

}  // namespace graphpipe::partitioner
