#pragma once
// Linear pipelines where devices differ in speed or memory: consecutive elements of one line of all nodes, each stage
// priced on the devices that it gets.
//
// For each micro-batch size dynamic programming over (elements so far, devices so far of each class) finds the smallest
// bottleneck; further passes find, for a few limits above it, the pipeline with the shortest pipeline latency, which
// fills and drains fastest. Exact for these pipelines, except that memory is asked of each stage alone with one
// micro-batch in flight. Where that is too much the line is coarser, classes of about equal speed become one, or
// devices are handed out in bunches.
//
// Example: elements of 2, 1 and 1 s, one device of usual speed and one of twice the speed. The first two elements take
// 1.5 s on the fast device, the third 1 s on the other: 1.5 s. Any other cut, or both devices as replicas at the speed
// of the slower, takes 2 s or more.

#include "partitioner/candidates.h"

namespace graphpipe::partitioner {

/// Adds the pipelines to `found`. Does nothing where devices are alike, or where stages or replicas are prescribed.
void search_unequal_devices(const PlanRequest& request, Deadline& deadline, Candidates& found);

}  // namespace graphpipe::partitioner
