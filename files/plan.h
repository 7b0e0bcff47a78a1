#pragma once
// Plan files: "graphpipe.plan/1", the JSON mapping of files/schema/plan.proto.

#include <string>
#include <string_view>

#include "ir/plan.h"
#include "support/result.h"

namespace graphpipe::files {

/// Ends in a newline; equal plans print equally, and parse_plan(print_plan(p)) == p.
/// Needs: all sample counts below 2^31; every node in a stage.
std::string print_plan(const ir::Plan& plan);

/// The same as the bytes of the message: a tenth of the text, for digests.
std::string print_plan_binary(const ir::Plan& plan);

/// Reports every bad field with its path (kBadPlan; kMalformedFile and kLimitExceeded for the form). Checked: every
/// node in exactly one stage, devices, micro-batches from 1 to the batch, names of options, digests. Whether the plan
/// fits the model and the cluster is for build_stage_graph and the plan checker.
Result<ir::Plan> parse_plan(std::string_view text);

Result<ir::Plan> read_plan(const std::string& path);
/// Atomic: no reader ever sees half of it.
Status write_plan(const std::string& path, const ir::Plan& plan);

}  // namespace graphpipe::files
