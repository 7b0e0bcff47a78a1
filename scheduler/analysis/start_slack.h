#pragma once
// How late each device may start. A step that follows another without a flush leaves the time before a device's first
// action to the step before it, so that the span from first start to last end is what counts (zero bubble, ZB-2P). On a
// graph of stages short branches could begin long before anybody waits for them: their spans are zero bubble only when
// their starts are delayed (docs/schedules.md, section 6).

#include <vector>

#include "scheduler/simulate/simulate.h"

namespace graphpipe::scheduler {

/// Per program the latest start of its first compute action for which no device ends its last compute action later than
/// in the timeline, all devices delayed at once. Messages take as long as they took there. Zero for a program without
/// compute. Needs: a timeline of this schedule.
std::vector<Ticks> latest_starts(const StageGraph& graph, const Schedule& schedule, const Timeline& timeline);

/// Gives the schedule the latest starts of its timeline, and simulates it again, where that makes the longest span of a
/// device shorter. No device ends later than before. Errors: those of the simulator.
Status delay_starts(const StageGraph& graph, const ir::Cluster& cluster, const SimulateOptions& options,
                    Schedule& schedule, Timeline& timeline);

/// The longest time from a device's latest start to its last end.
Ticks longest_delayed_span(const StageGraph& graph, const Schedule& schedule, const Timeline& timeline);

}  // namespace graphpipe::scheduler
