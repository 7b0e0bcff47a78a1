#include "scheduler/simulate/timeline.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace graphpipe::scheduler {

bool keeps_busy(ActionOp op) {
  return ir::is_compute(op) || op == ActionOp::kStep || op == ActionOp::kOffload || op == ActionOp::kReload;
}

TimelineMetrics metrics_of(const Schedule& schedule, const Timeline& timeline) {
  TimelineMetrics metrics;
  metrics.makespan = timeline.makespan;
  Ticks busy, computed;
  for (size_t program = 0; program < schedule.programs.size(); ++program) {
    DeviceUse use;
    bool started = false;
    Ticks end;
    for (size_t i = 0; i < schedule.programs[program].actions.size(); ++i) {
      const ActionOp op = schedule.programs[program].actions[i].op;
      if (!keeps_busy(op)) continue;
      const Span span = timeline.spans[program][i];
      busy += std::max(Ticks(0), span.end - std::max(span.start, end));
      end = std::max(end, span.end);
      if (!ir::is_compute(op)) continue;
      if (!started) use.first_start = span.start;
      started = true;
      use.last_end = std::max(use.last_end, span.end);
      use.busy += span.end - span.start;
    }
    computed += use.busy;
    metrics.longest_span = std::max(metrics.longest_span, use.span());
    metrics.devices.push_back(use);
  }
  const double devices = static_cast<double>(metrics.devices.size());
  const auto idle = [&](Ticks work, Ticks whole) {
    return whole.count == 0 ? 0.0 : 1 - static_cast<double>(work.count) / (devices * static_cast<double>(whole.count));
  };
  metrics.bubble_of_makespan = idle(busy, metrics.makespan);
  metrics.bubble_of_span = idle(computed, metrics.longest_span);
  return metrics;
}

std::vector<ActionPlace> critical_path(const Timeline& timeline) {
  ActionPlace last;
  for (size_t program = 0; program < timeline.spans.size(); ++program)
    for (size_t i = 0; i < timeline.spans[program].size(); ++i) {
      const ActionPlace place{static_cast<int32_t>(program), static_cast<int32_t>(i)};
      if (timeline.spans[program][i].end == timeline.makespan && last.program < 0) last = place;
    }
  std::vector<ActionPlace> path;
  while (last.program >= 0) {
    path.push_back(last);
    last = timeline.causes[static_cast<size_t>(last.program)][static_cast<size_t>(last.position)];
  }
  std::reverse(path.begin(), path.end());
  return path;
}

std::vector<int> peak_in_flight(const Schedule& schedule, bool to_input_gradient) {
  using Key = std::tuple<int32_t, int32_t, int64_t>;
  std::vector<int> peaks;
  std::set<Key> with_backward;
  const auto key_of = [](const Action& a) { return Key(a.stage, a.replica, a.range.first); };
  const auto ends = [&](ActionOp op) {
    return op == ActionOp::kBackward ||
           op == (to_input_gradient ? ActionOp::kInputGradient : ActionOp::kWeightGradient);
  };
  for (const ir::Program& program : schedule.programs)
    for (const Action& action : program.actions)
      if (ends(action.op)) with_backward.insert(key_of(action));
  for (const ir::Program& program : schedule.programs) {
    std::set<Key> alive;
    size_t peak = 0;
    for (const Action& action : program.actions) {
      if (action.op == ActionOp::kForward) {
        alive.insert(key_of(action));
        peak = std::max(peak, alive.size());
        if (!with_backward.contains(key_of(action))) alive.erase(key_of(action));
      } else if (ends(action.op)) {
        alive.erase(key_of(action));
      }
    }
    peaks.push_back(static_cast<int>(peak));
  }
  return peaks;
}

}  // namespace graphpipe::scheduler
