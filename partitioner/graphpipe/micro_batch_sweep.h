#pragma once
// Searches several spaces of one graph at all micro-batch sizes, on several threads, and collects the plans.
//
// Every size is a search for the smallest time per sample (device_count_dp.h, pipeline_dp.h). Sizes go from the middle
// outward, two at a time; one is left out where even its work, spread evenly, is no faster than the best plan so far.
//
// Example: 64 samples on four devices. Sizes 4 and 8 come first, about four micro-batches a device, then 2 and 16, 1
// and 32, and at last 64.

#include "partitioner/candidates.h"

namespace graphpipe::partitioner {

struct SweepOptions {
  /// Stages may recompute where memory asks for it.
  bool recompute = false;
  /// Besides the plan with the smallest time per sample, plans at these multiples of it: fewer and fuller stages fill
  /// and drain faster.
  std::vector<double> slacks = {1.05, 1.15, 1.3, 1.6};
  /// The time per sample has a share of the update of the weights, as of the all-reduce; not in the paper.
  bool counts_updates = false;
  /// The level of links that messages between stages are priced at; the outermost where there are fewer.
  size_t level = std::numeric_limits<size_t>::max();
  /// Stages stay within groups that the links of this level join, where they fit, and what leaves a group is priced at
  /// the next level out. Needs one: a `level` that is not the outermost.
  bool in_groups = false;
};

/// Adds what the searches find to `found`, the same whatever the number of threads, unless the deadline passes.
/// Needs: spaces of the request's graph, with shapes.
void search_spaces(const PlanRequest& request, const std::vector<SearchSpace>& spaces, const SweepOptions& options,
                   const Deadline& deadline, Candidates& found);

}  // namespace graphpipe::partitioner
