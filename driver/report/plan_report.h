#pragma once
// How a plan is shown: for people as tables, for programs as fields.

#include <string>
#include <vector>

#include "cost/limits.h"
#include "driver/pipeline/pipeline.h"
#include "driver/report/json_object.h"

namespace graphpipe::driver {

/// Seconds of one micro-batch on one replica: forward and backward.
double item_seconds(const ir::Stage& stage);

/// All devices of a stage, replica by replica.
std::vector<int64_t> devices_of(const ir::StageChoice& choice);
/// "d0 d3"; of more than eight, their range.
std::string devices_text(const ir::StageChoice& choice);
/// "device 3", "devices 0 to 1023", "devices 0, 4, 8 and 5 more".
std::string names_of_devices(const ir::StageChoice& choice);

/// "where batches follow each other without draining: ...", a line.
std::string steady_line(const scheduler::SteadyState& steady);

/// What limits the plan's step.
cost::Limit limit_of(const Pipeline& pipeline);

/// Why replicas that train by this plan keep the optimizer's state whole, whatever the plan says; empty: they can
/// divide it.
std::string why_state_stays_whole(const Pipeline& pipeline);

std::string plan_text(const Pipeline& pipeline);
/// The plan's policy; of `auto` also the one whose order it took: "auto (zb-1p)".
std::string policy_words(const Pipeline& pipeline);
/// planner, policy, stages, simulated_step, bound, gap, limit, peak_bytes, ...
JsonObject plan_json(const Pipeline& pipeline);

}  // namespace graphpipe::driver
