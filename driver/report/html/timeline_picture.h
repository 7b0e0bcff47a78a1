#pragma once
// The timeline of a plan as a picture.

#include <string>

#include "driver/pipeline/pipeline.h"
#include "scheduler/render/gantt.h"

namespace graphpipe::driver {

/// An SVG of every device's work over the step, stages by the modules in them where these are known: what the report
/// shows, `simulate --format svg` writes and a notebook draws.
std::string timeline_picture(const Pipeline& pipeline);
std::string timeline_picture(const ir::StageGraph& stages, const scheduler::BuiltSchedule& built,
                             const scheduler::StageNames& names);

/// The modules that stages consist of, short enough to stand beside their lines; empty where one is not known.
scheduler::StageNames stage_names(const Pipeline& pipeline);

}  // namespace graphpipe::driver
