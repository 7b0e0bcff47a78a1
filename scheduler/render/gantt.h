#pragma once
// Pictures of a timeline: for the terminal, as SVG, and as a trace for Perfetto or chrome://tracing.

#include "scheduler/memory/memory.h"
#include "scheduler/simulate/timeline.h"
#include "support/text.h"

namespace graphpipe::scheduler {

struct GanttOptions {
  /// Columns of the whole picture; at least 20.
  int width = 100;
  /// ANSI colours: forwards blue, backwards green, weight gradients yellow.
  bool color = false;
  /// The line about makespan and idle share.
  bool metrics = true;
};

/// One row per device, or per group of devices that do the same where there are many (device_groups.h), with the
/// micro-batches of its first; time from left to right in equal columns. A cell shows what runs in it: "F3" where there
/// is room, else its letter; "." is idle. Micro-batches are numbered per stage; where a device holds several stages a
/// cell begins with the stage: "2F3". A line below tells the makespan and the idle share.
std::string gantt_text(const StageGraph& graph, const Schedule& schedule, const Timeline& timeline,
                       const GanttOptions& options = {});

/// What the times of a picture are written in.
struct TimeAxis {
  double ticks_per_unit = 1;
  /// Behind each number, such as " ms".
  std::string unit;
};

/// Seconds, milliseconds or microseconds, so that the numbers of a real time are short.
TimeAxis axis_of_seconds(Ticks makespan);

/// By stage; empty where there are none.
using StageNames = std::vector<EncodedText<HtmlText>>;

/// The same as a picture of its own, with an axis, a legend, stages by their names, messages as lines between the rows,
/// and sums over replicas as thin bars. Of more than 16 devices those that do the same have one row (device_groups.h),
/// with the micro-batches of the first.
/// More than 48 rows or 20,000 actions are shown as how busy the devices are, in at most 48 rows.
std::string gantt_svg(const StageGraph& graph, const Schedule& schedule, const Timeline& timeline,
                      const TimeAxis& axis = {}, const StageNames& names = {});

/// Chrome trace events: one process per device with lanes for compute, transfers and collectives, flow arrows from
/// sends to receives, memory counters. `ticks_per_microsecond` scales time (1000 for nanoseconds).
std::string trace_json(const StageGraph& graph, const Schedule& schedule, const Timeline& timeline,
                       const std::vector<DeviceMemory>& memory, double ticks_per_microsecond = 1000);

/// Number of the micro-batch of its stage that the action's samples belong to.
int64_t micro_batch_of(const StageGraph& graph, const Action& action);

}  // namespace graphpipe::scheduler
