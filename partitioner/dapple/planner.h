#pragma once
// DAPPLE's planner (Fan et al., PPoPP 2021, as its program computes): the speed-up of one synchronous iteration over
// one device, with stages placed on machines (docs/planners.md, section 5). Its program finds data parallelism, two
// stages, or one device per stage; those three families are enumerated and scored by its formula. Without the quirk D1
// pipelines of unequal stages are scored too.
//
// Example: 8 s of work in four micro-batches, two stages of 1 s per micro-batch each, no traffic. An iteration takes
// 1 * (4 - 1) + 8 / 4 = 5 s: the speed-up is 1.6.

#include "partitioner/cost_models/unit_request.h"

namespace graphpipe::partitioner {

/// Bytes per second that the original assumes (quirk D9).
inline constexpr double kDappleEthernet = 1e9, kDappleEthernetCollective = 3e9, kDappleNvlink = 25e9;

std::span<const Quirk> dapple_quirks();
/// Needs: request.batch, micro_batch, profile_batch; machines, where there are several. The objective is a speed-up;
/// the bound is the number of devices. No memory is looked at.
Result<UnitAnswer> plan_dapple(const UnitRequest& request);

}  // namespace graphpipe::partitioner
