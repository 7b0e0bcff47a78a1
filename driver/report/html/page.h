#pragma once
// The report of plans: one page that needs nothing else.

#include <string>
#include <vector>

#include "driver/pipeline/pipeline.h"

namespace graphpipe::driver {

/// What is measured of a plan: seconds of the steps that a run logged (`run --log FILE.jsonl`), without the first ones,
/// which warm up. Empty where nothing was measured.
struct Measured {
  std::vector<double> step_seconds;
};

/// A plan with what the page says of it.
struct ReportedPlan {
  /// As it was named on the command line.
  std::string name;
  Pipeline pipeline;
  Measured measured;
};

/// A page over the plans: a comparison where there are several, then for each its stages, timeline, idle time and
/// memory. Names from files are encoded; the page loads nothing and runs nothing.
std::string report_page(const std::vector<ReportedPlan>& plans);

}  // namespace graphpipe::driver
