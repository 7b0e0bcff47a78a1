#include <cstdio>

#include "scheduler/render/gantt.h"

namespace graphpipe::scheduler {
namespace {

constexpr double kWidth = 1200, kRow = 36, kBar = 26, kLeft = 80, kTop = 10;

const char* fill_of(ActionOp op) {
  switch (op) {
    case ActionOp::kForward:
      return "#7aa6da";
    case ActionOp::kBackward:
      return "#8fc48f";
    case ActionOp::kInputGradient:
      return "#8fd1c4";
    case ActionOp::kWeightGradient:
      return "#e6c36a";
    case ActionOp::kRecompute:
      return "#b9c9e0";
    default:
      return "#c99ad0";
  }
}

std::string number(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.2f", value);
  return buffer;
}

/// Finds places on the picture.
struct Frame {
  double scale = 0;
  double x(Ticks time) const { return kLeft + static_cast<double>(time.count) * scale; }
  double y(size_t row) const { return kTop + kRow * static_cast<double>(row); }
};

void draw_bar(const StageGraph& graph, const Action& action, Span span, const Frame& frame, size_t row,
              std::string& out) {
  const double width = frame.x(span.end) - frame.x(span.start);
  if (width <= 0) return;
  const std::string x = number(frame.x(span.start)), y = number(frame.y(row));
  out += "<g><title>" + ir::print_action(action) + " " + std::to_string(span.start.count) + " to " +
         std::to_string(span.end.count) + "</title><rect x=\"" + x + "\" y=\"" + y + "\" width=\"" + number(width) +
         "\" height=\"" + number(kBar) + "\" fill=\"" + fill_of(action.op) + "\" stroke=\"#fff\"/>";
  const std::string label =
      ir::is_compute(action.op) ? std::to_string(micro_batch_of(graph, action)) : std::string("S");
  if (width > 7.0 * static_cast<double>(label.size()))
    out += "<text x=\"" + number(frame.x(span.start) + width / 2) + "\" y=\"" + number(frame.y(row) + 17) +
           "\" text-anchor=\"middle\">" + label + "</text>";
  out += "</g>\n";
}

/// A line from the sender's row to the receiver's, over the time of the transfer.
void draw_transfer(Span span, const Frame& frame, size_t from, size_t to, std::string& out) {
  if (from == to) return;
  const double y1 = frame.y(from) + kBar / 2, y2 = frame.y(to) + kBar / 2;
  out += "<line x1=\"" + number(frame.x(span.start)) + "\" y1=\"" + number(y1) + "\" x2=\"" +
         number(frame.x(span.end)) + "\" y2=\"" + number(y2) + "\" stroke=\"#888\" stroke-width=\"0.7\"/>\n";
}

}  // namespace

std::string gantt_svg(const StageGraph& graph, const Schedule& schedule, const Timeline& timeline) {
  const size_t rows = schedule.programs.size();
  const Frame frame{
      timeline.makespan.count == 0 ? 0.0 : (kWidth - kLeft - 10) / static_cast<double>(timeline.makespan.count)};
  const std::string height = number(kTop * 2 + kRow * static_cast<double>(rows));
  std::string out = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + number(kWidth) + "\" height=\"" + height +
                    "\" font-family=\"sans-serif\" font-size=\"11\">\n";
  std::string lines;
  for (size_t row = 0; row < rows; ++row) {
    const ir::Program& program = schedule.programs[row];
    out += "<text x=\"4\" y=\"" + number(frame.y(row) + 17) + "\">device " + std::to_string(program.device.index()) +
           "</text>\n";
    for (size_t i = 0; i < program.actions.size(); ++i) {
      const Action& action = program.actions[i];
      const Span span = timeline.spans[row][i];
      if (ir::is_compute(action.op) || action.op == ActionOp::kStep) draw_bar(graph, action, span, frame, row, out);
      const ActionPlace cause = timeline.causes[row][i];
      // The cause of a receive is its send.
      if (ir::is_receive(action.op) && cause.program >= 0)
        draw_transfer(timeline.spans[static_cast<size_t>(cause.program)][static_cast<size_t>(cause.position)], frame,
                      static_cast<size_t>(cause.program), row, lines);
    }
  }
  return out + lines + "</svg>\n";
}

}  // namespace graphpipe::scheduler
