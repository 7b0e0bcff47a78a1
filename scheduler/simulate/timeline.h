#pragma once
// When everything happens: what the simulator returns, and the metrics that are read off it. Derived, never stored.

#include <vector>

#include "scheduler/terms.h"

namespace graphpipe::scheduler {

/// One action's time, half-open. A send lasts from the start of its transfer to the arrival; a receive from the moment
/// when it is posted to the arrival; a reduction from its contribution to its result.
struct Span {
  Ticks start, end;
  bool operator==(const Span&) const = default;
};

/// Where an action stands: program (position in Schedule::programs) and position in its list.
struct ActionPlace {
  int32_t program = -1;
  int32_t position = -1;
  bool operator==(const ActionPlace&) const = default;
};

struct Timeline {
  /// Per program, per action.
  std::vector<std::vector<Span>> spans;
  /// Per program, per action: the action whose end fixed this one's start; {-1, -1} where it started at zero.
  std::vector<std::vector<ActionPlace>> causes;
  Ticks makespan;
};

/// One device's use of the step.
struct DeviceUse {
  Ticks first_start, last_end;  // of its compute actions
  Ticks busy;
  Ticks span() const { return last_end - first_start; }
};

struct TimelineMetrics {
  Ticks makespan;
  std::vector<DeviceUse> devices;
  /// Longest time from a device's first start to its last end: the bubble of the zero-bubble papers is measured on it.
  Ticks longest_span;
  /// 1 - busy time (keeps_busy) / (devices * makespan).
  double bubble_of_makespan = 0;
  /// 1 - time of compute / (devices * longest span).
  double bubble_of_span = 0;
};
/// Whether a device that runs the action waits for nothing: it computes, steps its optimizer or moves tensors itself.
bool keeps_busy(ActionOp op);
TimelineMetrics metrics_of(const Schedule& schedule, const Timeline& timeline);

/// The chain of actions that fixes the makespan, from the first to the last.
std::vector<ActionPlace> critical_path(const Timeline& timeline);

/// Most items in flight per device, by list order: an item counts from its F to its last backward action
/// (`to_input_gradient`: to its B or I). Items that have no backward count only while their F runs.
std::vector<int> peak_in_flight(const Schedule& schedule, bool to_input_gradient);

}  // namespace graphpipe::scheduler
