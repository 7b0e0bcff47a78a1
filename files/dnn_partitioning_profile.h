#pragma once
// Inputs of dnn-partitioning (Tarnawski et al., NeurIPS 2020): nodes with times on accelerators and CPUs, classes that
// share a device, and the time that moving a node's output takes.

#include <string>
#include <string_view>

#include "ir/assignment.h"
#include "ir/imported_profile.h"
#include "support/result.h"

namespace graphpipe::files {

/// Fields that the format does not have are passed over. Latencies and costs are milliseconds, as the original reads
/// them (some published files give costs in seconds next to latencies in milliseconds; they are read as they are).
/// Errors: kMalformedFile and kLimitExceeded with the path of the field, kBadProfile.
Result<ir::ImportedProfile> parse_dnn_partitioning_profile(std::string_view text);
/// Errors: also kUnreadableFile.
Result<ir::ImportedProfile> read_dnn_partitioning_profile(const std::string& path);

/// A split of the format's "expert" files: lists of node ids for accelerators and CPUs. Layers that are not listed
/// follow a listed one of their class. Accelerators are numbered from 0, CPUs from `first_cpu`; empty ones are left
/// out. The stages need be neither contiguous nor small enough: the split is for pricing. Errors: kMalformedFile with
/// the path of the field; kBadPlan for unknown, repeated and missing layers.
Result<ir::Assignment> parse_dnn_partitioning_split(std::string_view text, const ir::PlanGraph& graph, int first_cpu);

}  // namespace graphpipe::files
