#pragma once
// Inputs of dnn-partitioning (Tarnawski et al., NeurIPS 2020): nodes with times on accelerators and CPUs, classes that
// share a device, and the time that moving a node's output takes.

#include <string>
#include <string_view>

#include "ir/layer_graph.h"
#include "support/result.h"

namespace graphpipe::files {

/// Fields that the format does not have are passed over. Latencies and costs are milliseconds, as the original reads
/// them (some published files give costs in seconds next to latencies in milliseconds; they are read as they are).
/// Errors: kMalformedFile and kLimitExceeded with the path of the field, kBadProfile.
Result<ir::LayerGraph> parse_dnn_partitioning_profile(std::string_view text);
/// Errors: also kUnreadableFile.
Result<ir::LayerGraph> read_dnn_partitioning_profile(const std::string& path);

}  // namespace graphpipe::files
