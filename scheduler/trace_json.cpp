#include <cstdio>

#include "scheduler/gantt.h"

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

class TraceWriter {
 public:
  explicit TraceWriter(double ticks_per_microsecond) : scale_(1 / ticks_per_microsecond) {}

  void name(size_t process, int lane, const char* kind, const std::string& name) {
    event("M", process, lane, Ticks(0), "\"name\":\"" + std::string(kind) + "\",\"args\":{\"name\":\"" + name + "\"}");
  }
  void span(size_t process, int lane, const std::string& name, Span span, const std::string& arguments) {
    event("X", process, lane, span.start,
          "\"name\":\"" + name + "\",\"dur\":" + time(span.end - span.start) + ",\"args\":{" + arguments + "}");
  }
  /// One end of an arrow; begin and end carry the same number.
  void flow(bool begin, size_t process, int lane, Ticks at, size_t number) {
    event(begin ? "s" : "f", process, lane, at,
          "\"name\":\"message\",\"cat\":\"message\",\"bp\":\"e\",\"id\":" + std::to_string(number));
  }
  void counter(size_t process, Ticks at, Bytes bytes) {
    event("C", process, 0, at, "\"name\":\"memory\",\"args\":{\"bytes\":" + std::to_string(bytes.count) + "}");
  }
  std::string finish() && { return "{\"traceEvents\":[\n" + events_ + "\n],\"displayTimeUnit\":\"ns\"}\n"; }

 private:
  std::string time(Ticks ticks) const {
    char buffer[40];
    std::snprintf(buffer, sizeof buffer, "%.3f", static_cast<double>(ticks.count) * scale_);
    return buffer;
  }
  void event(const char* phase, size_t process, int lane, Ticks at, const std::string& rest) {
    if (!events_.empty()) events_ += ",\n";
    events_ += "{\"ph\":\"" + std::string(phase) + "\",\"pid\":" + std::to_string(process) +
               ",\"tid\":" + std::to_string(lane) + ",\"ts\":" + time(at) + "," + rest + "}";
  }
  double scale_;
  std::string events_;
};

}  // namespace

std::string trace_json(const StageGraph& graph, const Schedule& schedule, const Timeline& timeline,
                       const std::vector<DeviceMemory>& memory, double ticks_per_microsecond) {
  TraceWriter out(ticks_per_microsecond);
  size_t arrows = 0;
  for (size_t p = 0; p < schedule.programs.size(); ++p) {
    const ir::Program& program = schedule.programs[p];
    const size_t device = program.device.index();
    out.name(device, 0, "process_name", "device " + std::to_string(device));
    for (int lane = kCompute; lane <= kCollective; ++lane) out.name(device, lane, "thread_name", kLaneNames[lane]);
    for (size_t i = 0; i < program.actions.size(); ++i) {
      const Action& action = program.actions[i];
      const Span span = timeline.spans[p][i];
      out.span(device, lane_of(action.op), ir::print_action(action), span,
               "\"stage\":" + std::to_string(action.stage) + ",\"micro_batch\":" +
                   std::to_string(micro_batch_of(graph, action)) + ",\"version\":" + std::to_string(action.version));
      const ActionPlace cause = timeline.causes[p][i];
      if (!ir::is_receive(action.op) || cause.program < 0) continue;
      const auto sender = static_cast<size_t>(cause.program);
      out.flow(true, schedule.programs[sender].device.index(), kSend,
               timeline.spans[sender][static_cast<size_t>(cause.position)].start, arrows);
      out.flow(false, device, kReceive, span.end, arrows++);
    }
    if (p < memory.size())
      for (const MemoryPoint& point : memory_over_time(memory[p], timeline.spans[p]))
        out.counter(device, point.time, point.bytes);
  }
  return std::move(out).finish();
}

}  // namespace graphpipe::scheduler
