#pragma once
// What `schedule` and `check` say about a schedule without a model.

#include "driver/pipeline/standalone_schedule.h"
#include "driver/report/json_object.h"

namespace graphpipe::driver {

/// Numbers of times in reports are units of cost.
std::string standalone_text(const StandaloneSchedule& standalone);

/// The metrics that both verbs have: makespan, spans, bubbles, bound, peaks.
void add_metrics(JsonObject& object, const StandaloneSchedule& standalone);
/// Idle time by cause and the critical path, in units of cost.
void add_standalone_timeline(JsonObject& object, const StandaloneSchedule& standalone);

/// All that `schedule` knows: the metrics, the lists of stages and devices, in-flight numbers.
JsonObject standalone_json(const StandaloneSchedule& standalone);

}  // namespace graphpipe::driver
