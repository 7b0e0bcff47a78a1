#pragma once
// The timeline of a plan as a picture.

#include <string>

#include "driver/pipeline/pipeline.h"

namespace graphpipe::driver {

/// An SVG of every device's work over the step, stages by the modules in them where these are known: what the report
/// shows, `simulate --format svg` writes and a notebook draws.
std::string timeline_picture(const Pipeline& pipeline);

}  // namespace graphpipe::driver
