#pragma once
// The yardstick of all plans, of models and of profiles: the simulated step, and for large schedules the closed form.

#include <optional>

#include "ir/stage_graph.h"
#include "scheduler/build_schedule.h"

namespace graphpipe::scheduler {

/// Passes of a step above which the closed form stands for its simulation. Of a model's plans few are that large.
inline constexpr int64_t kMaxSimulated = 200'000;
/// The same for plans that a search of a profile compares: its layers are many and cheap, so thousands of plans are
/// large. Also of those that it found, where stages share devices: many short stages that do take long to simulate.
inline constexpr int64_t kMaxSimulatedInProfileSearch = 2'000;
/// Of the other plans that such a search found, which are few again.
inline constexpr int64_t kMaxSimulatedOfFoundPlan = 20'000;

/// Actions that a search of orders simulates for each plan that planners compare (BuildOptions::searched_actions).
inline constexpr int64_t kSearchedActionsOfCandidate = 20'000;

/// Passes that one step schedules: micro-batches of all stages, each once per replica that takes part in it.
int64_t schedule_size(const ir::PlanGraph& graph, const ir::Assignment& assignment);

/// Seconds of one step, infinite for a plan without a schedule. Where the schedule is larger than `max_simulated`:
/// cost::iteration_time, infinite for a plan that does not fit. `drain_every` as in order_batches.
double step_of_plan(const ir::PlanGraph& graph, const ir::Cluster& cluster, const BuildOptions& options,
                    ir::Assignment assignment, int64_t max_simulated, int64_t drain_every);

/// Why a plan that keeps the rules has no schedule; nothing where it has one.
std::optional<Diagnostic> refusal_of_plan(const ir::PlanGraph& graph, const ir::Cluster& cluster,
                                          const BuildOptions& options, ir::Assignment assignment, int64_t drain_every);

}  // namespace graphpipe::scheduler
