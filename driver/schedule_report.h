#pragma once
// What `schedule` and `check` say about a schedule without a model.

#include "driver/json_object.h"
#include "driver/schedule_study.h"

namespace graphpipe::driver {

/// Numbers of times in reports are units of cost.
std::string study_text(const ScheduleStudy& study);

/// The figures that both verbs have: makespan, spans, bubbles, bound, peaks.
void add_figures(JsonObject& object, const ScheduleStudy& study);
/// Idle time by cause and the critical path, in units of cost.
void add_study_timeline(JsonObject& object, const ScheduleStudy& study);

/// All that `schedule` knows: the figures, the lists of stages and devices, in-flight numbers.
JsonObject study_json(const ScheduleStudy& study);

}  // namespace graphpipe::driver
