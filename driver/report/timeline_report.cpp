#include "driver/report/timeline_report.h"

#include <fmt/format.h>

#include "driver/report/report.h"
#include "driver/report/traffic.h"
#include "scheduler/analysis/idle_time.h"
#include "scheduler/render/device_groups.h"
#include "scheduler/render/gantt.h"

namespace graphpipe::driver {
namespace {

using scheduler::IdleCause;

/// Steps of the critical path that a text shows, half of them from each end.
constexpr size_t kMaxSteps = 24;

double units(Ticks ticks, const TimeScale& scale) { return static_cast<double>(ticks.count) / scale.ticks_per_unit; }

std::string device_name(const ir::Schedule& schedule, size_t program) {
  return text("d", schedule.programs[program].device.index());
}

const ir::Action& action_at(const ir::Schedule& schedule, scheduler::ActionPlace place) {
  return schedule.programs[static_cast<size_t>(place.program)].actions[static_cast<size_t>(place.position)];
}

std::string label(const ir::StageGraph& graph, const ir::Schedule& schedule, scheduler::ActionPlace place) {
  const ir::Action& action = action_at(schedule, place);
  const std::string edge = action.edge >= 0 ? text("/e", action.edge) : "";
  return text(device_name(schedule, static_cast<size_t>(place.program)), ":", action.stage, ir::action_name(action.op),
              scheduler::micro_batch_of(graph, action), edge);
}

/// One line for each device; where there are many, one for all that do the same, with their mean.
std::string idle_table(const ir::StageGraph& graph, const ir::Schedule& schedule, const scheduler::Timeline& timeline,
                       const TimeScale& scale) {
  const std::vector<scheduler::IdleTime> idle = scheduler::idle_time(graph, schedule, timeline);
  std::vector<std::vector<std::string>> rows{{"device", "idle"}};
  for (int cause = 0; cause < scheduler::kIdleCauseCount; ++cause)
    rows[0].emplace_back(scheduler::idle_cause_name(static_cast<IdleCause>(cause)));
  const double whole = static_cast<double>(std::max<int64_t>(1, timeline.makespan.count));
  for (const scheduler::DeviceGroup& group : scheduler::device_groups(graph, schedule, timeline)) {
    const auto devices = static_cast<int64_t>(group.programs.size());
    std::vector<std::string>& row = rows.emplace_back();
    row.push_back(devices == 1 ? device_name(schedule, group.programs.front())
                               : scheduler::device_names(schedule, group));
    std::vector<std::string> causes;
    int64_t total = 0;
    for (size_t cause = 0; cause < scheduler::kIdleCauseCount; ++cause) {
      int64_t ticks = 0;
      for (const size_t p : group.programs) ticks += idle[p][cause].count;
      total += ticks;
      causes.push_back(ticks == 0 ? "-" : scale.shown(units(Ticks(ticks / devices), scale)));
    }
    row.push_back(fmt::format("{:.1f} %", 100 * static_cast<double>(total) / static_cast<double>(devices) / whole));
    row.insert(row.end(), causes.begin(), causes.end());
  }
  return table(rows);
}

}  // namespace

std::string timeline_text(const ir::StageGraph& graph, const ir::Schedule& schedule,
                          const scheduler::Timeline& timeline, const TimeScale& scale) {
  std::string out = idle_table(graph, schedule, timeline, scale);
  const Traffic traffic = traffic_of(graph, schedule);
  if (total_of(traffic.messages) > Bytes(0))
    out += text("messages of a step: ", device_bytes_text(traffic.messages), "\n");
  if (total_of(traffic.sums) > Bytes(0))
    out += text("weight gradients summed with other devices in a step: ", device_bytes_text(traffic.sums), "\n");
  const std::vector<scheduler::ActionPlace> path = scheduler::critical_path(timeline);
  out += "critical path:";
  for (size_t i = 0; i < path.size(); ++i) {
    if (path.size() > kMaxSteps && i == kMaxSteps / 2) {
      out += fmt::format(" ... {} more ...", path.size() - kMaxSteps);
      i = path.size() - kMaxSteps / 2;
    }
    out += " " + label(graph, schedule, path[i]);
  }
  return out + "\n";
}

void add_timeline(JsonObject& object, const ir::StageGraph& graph, const ir::Schedule& schedule,
                  const scheduler::Timeline& timeline, const TimeScale& scale) {
  std::vector<JsonObject> devices, steps;
  const std::vector<scheduler::IdleTime> idle = scheduler::idle_time(graph, schedule, timeline);
  for (size_t p = 0; p < idle.size(); ++p) {
    JsonObject& device = devices.emplace_back();
    device.add("device", schedule.programs[p].device.index());
    for (int cause = 0; cause < scheduler::kIdleCauseCount; ++cause)
      device.add(scheduler::idle_cause_name(static_cast<IdleCause>(cause)),
                 units(idle[p][static_cast<size_t>(cause)], scale));
  }
  for (const scheduler::ActionPlace place : scheduler::critical_path(timeline)) {
    const scheduler::Span span =
        timeline.spans[static_cast<size_t>(place.program)][static_cast<size_t>(place.position)];
    JsonObject& step = steps.emplace_back();
    step.add("device", schedule.programs[static_cast<size_t>(place.program)].device.index());
    step.add("action", ir::print_action(action_at(schedule, place)));
    step.add("start", units(span.start, scale)).add("end", units(span.end, scale));
  }
  object.add("idle", devices).add("critical_path", steps);
  const Traffic traffic = traffic_of(graph, schedule);
  const auto counts = [](const std::vector<DeviceBytes>& of_devices) {
    std::vector<int64_t> all;
    for (const DeviceBytes& each : of_devices) all.push_back(each.bytes.count);
    return all;
  };
  object.add("message_bytes", counts(traffic.messages)).add("summed_bytes", counts(traffic.sums));
}

void add_memory(JsonObject& object, const ir::Schedule& schedule, const scheduler::Timeline& timeline,
                const std::vector<scheduler::DeviceMemory>& memory, const TimeScale& scale) {
  std::vector<JsonObject> devices;
  for (size_t p = 0; p < memory.size(); ++p) {
    std::string points;
    for (const scheduler::MemoryPoint& point :
         scheduler::memory_over_time(memory[p], schedule.programs[p], timeline.spans[p])) {
      points += points.empty() ? "[" : ", [";
      points += json_number(units(point.time, scale)) + ", " + std::to_string(point.bytes.count) + "]";
    }
    JsonObject& device = devices.emplace_back();
    device.add("device", schedule.programs[p].device.index()).add_json("points", "[" + points + "]");
  }
  object.add("memory", devices);
}

}  // namespace graphpipe::driver
