#pragma once
// The cluster as a message: a file of its own, and part of plan files. For the .cpp files of this folder.

#include <string>

#include "files/proto_json.h"
#include "ir/cluster.h"

namespace graphpipe::files {

namespace schema {
class ClusterFile;
class RuntimeCosts;
}  // namespace schema

void fill_message(const ir::Cluster& cluster, schema::ClusterFile& message);
/// Adds what is wrong to `problems`, with `prefix` before each field's path.
ir::Cluster cluster_of(const schema::ClusterFile& message, const std::string& prefix, FieldProblems& problems);

/// The costs of running are part of profile files too.
void fill_message(const ir::RuntimeCosts& costs, schema::RuntimeCosts& message);
ir::RuntimeCosts runtime_costs_of(const schema::RuntimeCosts& message, const std::string& path,
                                  FieldProblems& problems);

}  // namespace graphpipe::files
