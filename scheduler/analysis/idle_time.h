#pragma once
// Why devices are idle: every idle tick of a simulated step is attributed to exactly one cause.

#include <array>

#include "scheduler/simulate/timeline.h"

namespace graphpipe::scheduler {

enum class IdleCause : uint8_t {
  kWarmUp,         // before the device's first action
  kForwardInput,   // the next forward's input is not computed yet
  kGradient,       // the next backward's gradient is not computed yet, and no forward could run instead
  kInFlightLimit,  // the same, while a forward whose input is there has to wait for its turn: its memory is not free
  kLink,           // what is needed has been computed and is under way, or waits for its link
  kCollective,     // a reduction or the norm is not done
  kDrain,          // after the device's last action
};
inline constexpr int kIdleCauseCount = 7;

/// "warm-up", "forward input", "gradient", "in-flight limit", "link", "collective", "drain".
std::string_view idle_cause_name(IdleCause cause);

/// Ticks by cause. Their sum is the makespan less the device's compute actions and optimizer steps.
using IdleTime = std::array<Ticks, kIdleCauseCount>;

/// Per program. Needs: a timeline of this schedule.
std::vector<IdleTime> idle_time(const StageGraph& graph, const Schedule& schedule, const Timeline& timeline);

}  // namespace graphpipe::scheduler
