#pragma once
// A profile of another project: a plan graph of the unit of work that was measured, and what the file says beside it.

#include <optional>
#include <vector>

#include "ir/plan_graph.h"

namespace graphpipe::ir {

enum class ProfileFormat : uint8_t { kPipeDream, kPiper, kDnnPartitioning };

/// What a file says beside its layers; absent where it says nothing.
struct ProfileDefaults {
  std::optional<int> devices;            // maxDevices, maxFPGAs
  std::optional<int> cpus;               // maxCPUs
  std::optional<double> memory;          // bytes of one accelerator
  std::optional<double> bandwidth;       // bytes per second
  std::optional<int64_t> micro_batches;  // mbsInBatch
  bool operator==(const ProfileDefaults&) const = default;
};

struct ImportedProfile {
  ProfileFormat format = ProfileFormat::kPipeDream;
  /// One sample is one unit of the profiled work, a mini-batch or a micro-batch; prices are linear in the samples.
  /// The nodes are the layers of the file; colocated sets are its classes, by ascending number.
  PlanGraph graph;
  ProfileDefaults defaults;
  /// Seconds of one unit of the file's times, 1 or 0.001: planners that mix units like their originals need it.
  double time_unit_seconds = 1;
  /// Ids of the file's layers that compute nothing and were left out: graph inputs, outputs that nothing reads.
  std::vector<ModelText> left_out;
  bool operator==(const ImportedProfile&) const = default;
};

}  // namespace graphpipe::ir
