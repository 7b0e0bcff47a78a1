#pragma once
// Cluster files: "graphpipe.cluster/1", the JSON mapping of files/schema/cluster.proto.

#include <string>
#include <string_view>

#include "ir/cluster.h"
#include "support/result.h"

namespace graphpipe::files {

/// Ends in a newline, and parse_cluster(print_cluster(c)) == c for every cluster that parse_cluster accepts.
std::string print_cluster(const ir::Cluster& cluster);
/// Reports every bad field with its path (kBadCluster; kMalformedFile and kLimitExceeded for the form). Checked:
/// positive finite numbers, whole bytes, groups that nest and whose last one covers all devices.
Result<ir::Cluster> parse_cluster(std::string_view text);

Result<ir::Cluster> read_cluster(const std::string& path);

}  // namespace graphpipe::files
