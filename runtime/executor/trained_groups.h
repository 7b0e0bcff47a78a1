#pragma once
// Groups of parameters (--group) that change nothing, because they name no parameters, or none that is trained.

#include <span>

#include "runtime/executor/stage_state.h"
#include "runtime/program.h"
#include "runtime/transport/channel.h"

namespace graphpipe::runtime {

/// Of each group of the options '2' where it names a parameter that one of these stages trains, '1' where it names
/// others of theirs, else '0'.
std::string trained_groups(const wire::OptimizerOptions& options, std::span<const StageState> states);

/// Rejects (kUsage) groups for which none of these has '2'. Throws RunError.
void check_trained_groups(const wire::OptimizerOptions& options, std::span<const std::string> of_ranks);

/// The same for a run of several ranks, in which each rank with stages of the plan tells rank 0 of its own. `store` may
/// be null in a run of one. Throws RunError.
void check_trained_groups(const wire::OptimizerOptions& options, std::span<const StageState> states,
                          const DeviceProgram& program, Store* store);

}  // namespace graphpipe::runtime
