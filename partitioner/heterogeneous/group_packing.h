#pragma once
// Stages into groups of near devices, such as hosts: those that exchange much into one, and none across two that fits
// into one.

#include <map>
#include <utility>

#include "ir/cluster.h"
#include "ir/stage_graph.h"

namespace graphpipe::partitioner {

/// Bytes of a step between two stages, messages and gradients.
std::map<std::pair<ir::StageId, ir::StageId>, double> traffic_of(const ir::StageGraph& stages);

/// The plan with its stages in groups of `group` devices that follow each other: pairs of stages with the most traffic
/// come into one group as long as they fit, and what is left over takes devices where they are free. A stage of more
/// devices gets whole groups first.
/// Example: groups of 4; a and c of 3 devices, b and d of 1; a and b exchange most, then c and d. a and b get devices
/// 0 to 3, c and d devices 4 to 7, whatever the order of the stages.
/// Needs: the plan has no more replicas than there are devices; `stages` is its stage graph.
ir::Assignment packed_into_groups(const ir::Cluster& cluster, const ir::StageGraph& stages, ir::Assignment plan,
                                  size_t group);

}  // namespace graphpipe::partitioner
