#pragma once
// Single actions of a schedule: whether their indices exist, and how diagnostics name them.

#include "scheduler/terms.h"

namespace graphpipe::scheduler {

/// What is wrong with an action by itself; empty where nothing is. Afterwards its stage, replica, range, edge, peer and
/// slot may be used as indices.
std::string_view action_problem(const StageGraph& graph, const Schedule& schedule, ir::DeviceId device,
                                const Action& a);

/// Starts there are none of, or one per program, none of them negative or beyond the simulator's clock.
bool has_right_starts(const Schedule& schedule);

/// What is wrong with a claimed overlap of the action at this position with the next one; empty where nothing is.
std::string_view overlap_problem(const ir::Program& program, size_t position);

/// "device 2, action 17: 1B[4,8)s0".
std::string place_text(const Schedule& schedule, size_t program, size_t position);
Diagnostic schedule_problem(const Schedule& schedule, size_t program, size_t position, std::string_view what,
                            std::string hint);

}  // namespace graphpipe::scheduler
