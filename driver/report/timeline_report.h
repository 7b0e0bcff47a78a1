#pragma once
// What a timeline says beyond its picture: where devices stand still, and the chain of actions that fixes the makespan.

#include "driver/report/json_object.h"
#include "ir/stage_graph.h"
#include "scheduler/memory/memory.h"

namespace graphpipe::driver {

/// Turns ticks into what a report shows.
struct TimeScale {
  double ticks_per_unit = 1;
  /// Writes one number of a table.
  std::string (*shown)(double units) = nullptr;
};

/// A row per device: share busy, then idle by cause; after it the critical path, cut in the middle where it is long.
std::string timeline_text(const ir::StageGraph& graph, const ir::Schedule& schedule,
                          const scheduler::Timeline& timeline, const TimeScale& scale);

/// "idle": per device an object by cause; "critical_path": the actions with device, start and end.
void add_timeline(JsonObject& object, const ir::StageGraph& graph, const ir::Schedule& schedule,
                  const scheduler::Timeline& timeline, const TimeScale& scale);

/// "memory": per device a list of [time, bytes].
void add_memory(JsonObject& object, const ir::Schedule& schedule, const scheduler::Timeline& timeline,
                const std::vector<scheduler::DeviceMemory>& memory, const TimeScale& scale);

}  // namespace graphpipe::driver
