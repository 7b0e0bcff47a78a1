#include "scheduler/render/device_groups.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "ir/device_names.h"
#include "scheduler/render/gantt.h"

namespace graphpipe::scheduler {
namespace {

/// What a device computes: by action its kind, its stage, and a number that tells it from others of these.
using ComputeOrder = std::vector<std::tuple<ActionOp, int32_t, int64_t>>;

template <typename NumberOf>
ComputeOrder compute_order(const ir::Program& program, NumberOf number_of) {
  ComputeOrder work;
  for (size_t i = 0; i < program.actions.size(); ++i)
    if (const Action& action = program.actions[i]; ir::is_compute(action.op))
      work.emplace_back(action.op, action.stage, number_of(i));
  return work;
}

}  // namespace

std::vector<DeviceGroup> device_groups(const StageGraph& graph, const Schedule& schedule, const Timeline& timeline,
                                       size_t max_apart) {
  std::vector<DeviceGroup> groups;
  std::map<ComputeOrder, size_t> of_micro_batches, of_times;
  for (size_t id = 0; id < schedule.programs.size(); ++id) {
    const ir::Program& program = schedule.programs[id];
    size_t group = groups.size();
    if (schedule.programs.size() > max_apart) {
      const auto times = [&](size_t i) { return timeline.spans[id][i].start.count; };
      group = of_times.try_emplace(compute_order(program, times), group).first->second;
      const auto micro_batches = [&](size_t i) { return micro_batch_of(graph, program.actions[i]); };
      group = of_micro_batches.try_emplace(compute_order(program, micro_batches), group).first->second;
    }
    if (group == groups.size()) groups.emplace_back();
    groups[group].programs.push_back(id);
  }
  return groups;
}

std::string device_names(const Schedule& schedule, const DeviceGroup& group) {
  std::vector<size_t> numbers;
  for (const size_t program : group.programs) numbers.push_back(schedule.programs[program].device.index());
  std::ranges::sort(numbers);
  return ir::device_names(numbers);
}

std::vector<size_t> stages_of(const ir::Program& program) {
  std::set<size_t> stages;
  for (const Action& action : program.actions)
    if (ir::is_compute(action.op)) stages.insert(static_cast<size_t>(action.stage));
  return {stages.begin(), stages.end()};
}

}  // namespace graphpipe::scheduler
