#pragma once
// The planner of PipeDream-2BW (Narayanan et al., ICML 2021, section 3.3): w equal pipelines of d stages each, every
// stage a run of equal length of the repeated layers, recomputing everywhere or nowhere. The original has no code; the
// formulas are the paper's. With the micro-batch as it was profiled and m = floor(micro-batches of a step / w):
//
//   units per second = w / max over stages of max( compute + activations and gradients received / B,
//                                                  2 (w - 1) / w |W| / (B m) )
//   memory           = 2 |W| + d |A|, recomputing 2 |W| + |A| + d |A that enters the stage|
//
// |W|, |A| of one stage, B bytes per second of the innermost level that holds the devices which talk. One version of
// the weights is in use while the other is made, which takes m >= d (docs/schedules.md, section 3). Layers with
// measured variants use these: the first without, the last with recomputation; where no layer has two, recomputing
// takes the forward once more. What a step has over m w micro-batches is not counted on.
//
// Example: three layers of 1 s, two devices, no traffic. With d = 1 and w = 2 each device takes 3 s, which is 2 / 3
// units per second. With d = 2 and w = 1 the run of two layers takes 2 s, 1 / 2 unit per second: the answer where
// weights take most of the memory, and a device's holds two layers and not three.

#include "partitioner/cost_models/unit_request.h"

namespace graphpipe::partitioner {

/// E2: the stand-in that Piper's authors measured; with it the quirks of that planner.
std::span<const Quirk> two_bw_quirks();

/// The largest throughput over all d w = devices (with `use_fewer`: up to them), m >= d, recomputation, and devices
/// numbered stage by stage or pipeline by pipeline, by exhaustive search: proven in that space. Ties go to the smaller
/// d, then w, then to no recomputation, then to the first numbering. Layers are not divided: they must have degree 1.
/// Errors beside those of every planner, kUsage: quirks of the stand-in without E2, a layer without degree 1, a
/// dnn-partitioning graph as it stands in its file, no layer that takes time.
Result<UnitAnswer> plan_two_bw(const UnitRequest& request);

}  // namespace graphpipe::partitioner
