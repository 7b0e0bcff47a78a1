#include "scheduler/gantt.h"
#include "support/trace_events.h"

namespace graphpipe::scheduler {
namespace {

/// Lanes of one device, as thread numbers of the trace.
enum Lane : int { kCompute = 0, kSend = 1, kReceive = 2, kCollective = 3 };
constexpr const char* kLaneNames[] = {"compute", "send", "receive", "collective"};

Lane lane_of(ActionOp op) {
  if (ir::is_send(op)) return kSend;
  if (ir::is_receive(op)) return kReceive;
  if (op == ActionOp::kReduceGradient || op == ActionOp::kNorm) return kCollective;
  return kCompute;
}

}  // namespace

std::string trace_json(const StageGraph& graph, const Schedule& schedule, const Timeline& timeline,
                       const std::vector<DeviceMemory>& memory, double ticks_per_microsecond) {
  TraceEvents out(ticks_per_microsecond);
  size_t arrows = 0;
  for (size_t p = 0; p < schedule.programs.size(); ++p) {
    const ir::Program& program = schedule.programs[p];
    const size_t device = program.device.index();
    out.name_process(device, "device " + std::to_string(device) + " simulated", 2 * device);
    for (int lane = kCompute; lane <= kCollective; ++lane) out.name_lane(device, lane, kLaneNames[lane]);
    for (size_t i = 0; i < program.actions.size(); ++i) {
      const Action& action = program.actions[i];
      const Span span = timeline.spans[p][i];
      out.span(device, lane_of(action.op), ir::print_action(action), span.start.count, span.end.count,
               "\"stage\":" + std::to_string(action.stage) + ",\"micro_batch\":" +
                   std::to_string(micro_batch_of(graph, action)) + ",\"version\":" + std::to_string(action.version));
      const ActionPlace cause = timeline.causes[p][i];
      if (!ir::is_receive(action.op) || cause.program < 0) continue;
      const auto sender = static_cast<size_t>(cause.program);
      out.arrow(true, schedule.programs[sender].device.index(), kSend,
               timeline.spans[sender][static_cast<size_t>(cause.position)].start.count, arrows);
      out.arrow(false, device, kReceive, span.end.count, arrows++);
    }
    if (p < memory.size())
      for (const MemoryPoint& point : memory_over_time(memory[p], timeline.spans[p]))
        out.counter(device, point.time.count, "memory", point.bytes.count);
  }
  return out.file();
}

}  // namespace graphpipe::scheduler
