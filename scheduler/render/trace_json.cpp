#include "scheduler/render/gantt.h"
#include "support/trace_events.h"

namespace graphpipe::scheduler {
namespace {

TraceKind kind_of(ActionOp op) {
  if (ir::is_send(op) || op == ActionOp::kSlice) return {1, "send"};
  if (ir::is_receive(op) || op == ActionOp::kConcatenate) return {2, "receive"};
  if (op == ActionOp::kReduceGradient || op == ActionOp::kNorm) return {3, "collective"};
  return {0, "compute"};
}

}  // namespace

std::string trace_json(const StageGraph& graph, const Schedule& schedule, const Timeline& timeline,
                       const std::vector<DeviceMemory>& memory, double ticks_per_microsecond) {
  TraceEvents out(ticks_per_microsecond);
  std::vector<std::vector<TraceSpan>> drawn(schedule.programs.size());
  for (size_t p = 0; p < schedule.programs.size(); ++p) {
    const ir::Program& program = schedule.programs[p];
    const size_t device = program.device.index();
    out.name_process(device, "device " + std::to_string(device) + " simulated", 2 * device);
    for (size_t i = 0; i < program.actions.size(); ++i) {
      const Action& action = program.actions[i];
      const Span span = timeline.spans[p][i];
      drawn[p].push_back(out.span(
          device, kind_of(action.op), ir::print_action(action), span.start.count, span.end.count,
          "\"stage\":" + std::to_string(action.stage) + ",\"micro_batch\":" +
              std::to_string(micro_batch_of(graph, action)) + ",\"version\":" + std::to_string(action.version)));
    }
    if (p < memory.size())
      for (const MemoryPoint& point : memory_over_time(memory[p], program, timeline.spans[p]))
        out.counter(device, point.time.count, "memory", point.bytes.count);
  }
  size_t arrows = 0;
  for (size_t p = 0; p < drawn.size(); ++p)
    for (size_t i = 0; i < drawn[p].size(); ++i) {
      const ActionPlace cause = timeline.causes[p][i];
      if (!ir::is_receive(schedule.programs[p].actions[i].op) || cause.program < 0) continue;
      out.arrow(drawn[static_cast<size_t>(cause.program)][static_cast<size_t>(cause.position)], drawn[p][i], arrows++);
    }
  return out.file();
}

}  // namespace graphpipe::scheduler
