#include <algorithm>

#include "scheduler/render/device_groups.h"
#include "scheduler/render/gantt.h"

namespace graphpipe::scheduler {
namespace {

const char* color_of(ActionOp op) {
  switch (op) {
    case ActionOp::kForward:
      return "\x1b[44;97m";
    case ActionOp::kWeightGradient:
      return "\x1b[43;30m";
    case ActionOp::kRecompute:
      return "\x1b[46;30m";
    case ActionOp::kStep:
      return "\x1b[45;97m";
    default:
      return "\x1b[42;30m";
  }
}

bool is_shown(ActionOp op) { return ir::is_compute(op) || op == ActionOp::kStep; }

bool holds_several_stages(const ir::Program& program) {
  int32_t first = -1;
  for (const Action& action : program.actions) {
    if (first < 0) first = action.stage;
    if (action.stage != first) return true;
  }
  return false;
}

std::string label_of(const StageGraph& graph, const Action& action, bool with_stage) {
  std::string label = with_stage ? std::to_string(action.stage) : "";
  if (action.op == ActionOp::kStep) return label + "S";
  return label + ir::action_name(action.op) + std::to_string(micro_batch_of(graph, action));
}

/// Columns of one device, each with a character and the action in it.
struct Cells {
  std::string characters;
  std::vector<int> actions;
};

Cells draw(const StageGraph& graph, const ir::Program& program, const std::vector<Span>& spans, Ticks whole,
           size_t columns) {
  Cells cells{std::string(columns, '.'), std::vector<int>(columns, -1)};
  const bool with_stage = holds_several_stages(program);
  const double scale = whole.count == 0 ? 0.0 : static_cast<double>(columns) / static_cast<double>(whole.count);
  for (size_t i = 0; i < program.actions.size(); ++i) {
    if (!is_shown(program.actions[i].op) || spans[i].start == spans[i].end) continue;
    const auto first = static_cast<size_t>(static_cast<double>(spans[i].start.count) * scale + 0.5);
    const auto last = std::min(columns, static_cast<size_t>(static_cast<double>(spans[i].end.count) * scale + 0.5));
    if (first >= last) continue;
    const std::string label = label_of(graph, program.actions[i], with_stage);
    // A label that would be cut shows the op's letter instead: half a number misleads.
    const std::string shown = label.size() <= last - first ? label : ir::action_name(program.actions[i].op);
    for (size_t column = first; column < last; ++column) {
      const size_t offset = column - first;
      cells.characters[column] = offset < shown.size() ? shown[offset] : '-';
      cells.actions[column] = static_cast<int>(i);
    }
  }
  return cells;
}

std::string colored(const ir::Program& program, const Cells& cells) {
  std::string out;
  int current = -1;
  for (size_t column = 0; column < cells.characters.size(); ++column) {
    const int action = cells.actions[column];
    if (action != current) out += action < 0 ? "\x1b[0m" : color_of(program.actions[static_cast<size_t>(action)].op);
    current = action;
    out += cells.characters[column];
  }
  return out + "\x1b[0m";
}

std::string percent(double share) {
  const auto tenths = static_cast<int64_t>(share * 1000 + 0.5);
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " %";
}

}  // namespace

int64_t micro_batch_of(const StageGraph& graph, const Action& action) {
  return action.range.first / graph.stages[StageId(static_cast<size_t>(action.stage))].choice.micro_batch.count;
}

std::string gantt_text(const StageGraph& graph, const Schedule& schedule, const Timeline& timeline,
                       const GanttOptions& options) {
  size_t heading = 0;
  std::vector<std::string> names;
  const std::vector<DeviceGroup> groups = device_groups(graph, schedule, timeline);
  for (const DeviceGroup& group : groups) {
    names.push_back(device_names(schedule, group));
    heading = std::max(heading, names.back().size());
  }
  const auto width = static_cast<size_t>(std::clamp(options.width, 20, 10000));
  const size_t columns = width > heading + 3 ? width - heading - 3 : 1;
  std::string out;
  for (size_t row = 0; row < groups.size(); ++row) {
    const size_t p = groups[row].programs.front();
    const Cells cells = draw(graph, schedule.programs[p], timeline.spans[p], timeline.makespan, columns);
    out += names[row] + std::string(heading - names[row].size(), ' ') + " |";
    out += (options.color ? colored(schedule.programs[p], cells) : cells.characters) + "|\n";
  }
  if (!options.metrics) return out;
  const TimelineMetrics metrics = metrics_of(schedule, timeline);
  return out + text("makespan ", timeline.makespan.count, " ticks, devices idle ", percent(metrics.bubble_of_makespan),
                    " of it\n");
}

}  // namespace graphpipe::scheduler
