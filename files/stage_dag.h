#pragma once
// Bare stage graphs for standalone schedules: a JSON object with "predecessors" (per stage the list of the stages that
// it reads, all of them lower numbers) and, where they are not the standalone schedule's own:
//   "micro_batch_size", "k"   per stage, a list or one number for all
//   "replicas"                per stage, devices that take its micro-batches in turn, a list or one number for all
//   "batch" | "micro_batches" samples of a step | micro-batches of a step
//   "forward", "backward"     cost of one micro-batch of each stage, a list or one number
//   "cost_per_sample"         {"forward": ..., "backward": ...}: cost of one sample, numbers or lists
//   "latency"                 of a message between devices
// Other members are results that somebody noted and are not read.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "support/result.h"

namespace graphpipe::files {

struct StageDag {
  std::vector<std::vector<int>> predecessors;
  /// Per stage; ones where the file says nothing.
  std::vector<int64_t> micro_batch_size;
  std::vector<int> k, replicas;
  /// Samples of a step; 0: not said.
  int64_t batch = 0;
  /// Per stage; empty: not said. Of one sample or of one micro-batch.
  std::vector<double> forward, backward;
  bool per_sample = false;
  std::optional<double> latency;

  /// One per replica of each stage.
  int64_t devices() const;
};

/// Errors: kMalformedFile with the member and what it should be; kLimitExceeded.
Result<StageDag> parse_stage_dag(std::string_view text);
Result<StageDag> read_stage_dag(const std::string& path);

}  // namespace graphpipe::files
