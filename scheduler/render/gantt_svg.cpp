#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <span>

#include "scheduler/render/device_groups.h"
#include "scheduler/render/gantt.h"
#include "scheduler/simulate/durations.h"

namespace graphpipe::scheduler {
namespace {

// The width with which the words can still be read on an A4 page.
constexpr double kWidth = 1000, kLeft = 128, kRight = 14, kTop = 44, kRow = 32, kBar = 24;
/// Room for half of a number of the axis.
constexpr double kHalfLabel = 26;
/// A thin bar below that of a row, for what runs beside the compute.
constexpr double kThinBar = 4;
/// More rows than this are not drawn action by action: each row then shows the share of time in which several groups of
/// devices are busy.
constexpr size_t kMaxDrawnRows = 48;
/// A picture with more actions is more than a browser can scroll.
constexpr size_t kMaxDrawnActions = 20'000;
constexpr int kBusyColumns = 240;

struct Look {
  const char* name;
  const char* fill;
};

/// Told apart in grey print and without red or green.
Look look_of(ActionOp op) {
  switch (op) {
    case ActionOp::kForward:
      return {"forward", "#9ecae1"};
    case ActionOp::kBackward:
      return {"backward", "#fdd0a2"};
    case ActionOp::kInputGradient:
      return {"input gradient", "#fdae6b"};
    case ActionOp::kWeightGradient:
      return {"weight gradient", "#fff3c4"};
    case ActionOp::kRecompute:
      return {"recompute", "#deebf7"};
    case ActionOp::kReduceGradient:
      return {"gradient sum", "#54278f"};
    case ActionOp::kNorm:
      return {"norm", "#bcbddc"};
    default:
      return {"step", "#969696"};
  }
}

bool is_drawn(ActionOp op) { return ir::is_compute(op) || op == ActionOp::kStep; }
bool is_collective(ActionOp op) { return op == ActionOp::kReduceGradient || op == ActionOp::kNorm; }

std::string fixed_point(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.2f", value);
  return buffer;
}

std::string short_number(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.4g", value);
  return buffer;
}

std::string words_at(double x, double y, const std::string& words, const char* anchor = "start") {
  return "<text x=\"" + fixed_point(x) + "\" y=\"" + fixed_point(y) + "\" text-anchor=\"" + anchor + "\">" + words +
         "</text>\n";
}

std::string rectangle(double x, double y, double width, double height, const std::string& rest) {
  return "<rect x=\"" + fixed_point(x) + "\" y=\"" + fixed_point(y) + "\" width=\"" + fixed_point(width) +
         "\" height=\"" + fixed_point(height) + "\" " + rest + "/>";
}

/// Maps times and rows to places on the picture.
class Frame {
 public:
  Frame(const Timeline& timeline, const TimeAxis& axis, size_t rows) : axis_(axis), rows_(rows) {
    end_ = static_cast<double>(timeline.makespan.count);
    scale_ = end_ == 0 ? 0.0 : (kWidth - kLeft - kRight) / end_;
  }
  double x(Ticks time) const { return kLeft + static_cast<double>(time.count) * scale_; }
  static double y(size_t row) { return kTop + kRow * static_cast<double>(row); }
  double height() const { return y(rows_) + 10; }
  double end() const { return end_; }
  std::string time(Ticks ticks) const {
    return short_number(static_cast<double>(ticks.count) / axis_.ticks_per_unit) + axis_.unit;
  }

  /// Lines at round times, five to ten of them.
  std::string grid() const {
    std::string out;
    const double units = end_ / axis_.ticks_per_unit;
    if (units <= 0) return out;
    double step = std::pow(10.0, std::floor(std::log10(units / 5)));
    for (const double larger : {2.0, 2.5, 2.0}) step *= units / step > 10 ? larger : 1;
    for (double at = 0; at <= units * 1.0001; at += step) {
      const double x = kLeft + at * axis_.ticks_per_unit * scale_;
      const bool at_edge = x > kWidth - kHalfLabel;
      out += "<line x1=\"" + fixed_point(x) + "\" y1=\"" + fixed_point(kTop - 6) + "\" x2=\"" + fixed_point(x) +
             "\" y2=\"" + fixed_point(height() - 8) + "\" stroke=\"#ddd\"/>\n";
      out += words_at(at_edge ? kWidth - 1 : x, kTop - 10, short_number(at) + axis_.unit, at_edge ? "end" : "middle");
    }
    return out;
  }

 private:
  TimeAxis axis_;
  size_t rows_;
  double end_ = 0, scale_ = 0;
};

/// What a picture shows: a row for each group of devices.
struct Rows {
  std::vector<DeviceGroup> groups;
  /// Per program, the row of its group.
  std::vector<size_t> row_of;
  /// Actions of the programs that stand for their groups.
  size_t actions = 0;

  Rows(const StageGraph& graph, const Schedule& schedule, const Timeline& timeline)
      : groups(device_groups(graph, schedule, timeline)), row_of(schedule.programs.size()) {
    for (size_t row = 0; row < groups.size(); ++row) {
      actions += schedule.programs[groups[row].programs.front()].actions.size();
      for (const size_t program : groups[row].programs) row_of[program] = row;
    }
  }
};

bool has_several_stages(const Schedule& schedule) {
  return std::ranges::any_of(schedule.programs,
                             [](const ir::Program& program) { return stages_of(program).size() > 1; });
}

std::string legend(const Schedule& schedule) {
  std::string out;
  double x = kLeft;
  for (const ActionOp op :
       {ActionOp::kForward, ActionOp::kBackward, ActionOp::kInputGradient, ActionOp::kWeightGradient,
        ActionOp::kRecompute, ActionOp::kStep, ActionOp::kReduceGradient, ActionOp::kNorm}) {
    const bool used = std::ranges::any_of(schedule.programs, [op](const ir::Program& program) {
      return std::ranges::any_of(program.actions, [op](const Action& action) { return action.op == op; });
    });
    if (!used) continue;
    const Look kind = look_of(op);
    const double height = is_collective(op) ? kThinBar : 12;
    out += rectangle(x, 10 - height / 2, 12, height, std::string("fill=\"") + kind.fill + "\" stroke=\"#333\"") +
           words_at(x + 17, 14, kind.name);
    x += 32 + 6.4 * static_cast<double>(std::string_view(kind.name).size());
  }
  return out + words_at(x, 14,
                        std::string("numbers: ") + (has_several_stages(schedule) ? "stage:" : "") +
                            "micro-batch; thin lines: messages");
}

std::string title_of(const Action& action, Span span, const Frame& frame) {
  return "<g><title>" + ir::print_action(action) + ": stage " + std::to_string(action.stage) + ", " +
         look_of(action.op).name + ", " + frame.time(span.start) + " to " + frame.time(span.end) + "</title>";
}

std::string words_in(const StageGraph& graph, const Action& action, bool with_stage) {
  if (!ir::is_compute(action.op)) return "S";
  return (with_stage ? std::to_string(action.stage) + ":" : "") + std::to_string(micro_batch_of(graph, action));
}

void draw_bar(const Action& action, Span span, const std::string& words, const Frame& frame, size_t row,
              std::string& out) {
  const double left = frame.x(span.start), width = frame.x(span.end) - left;
  if (width <= 0) return;
  out += title_of(action, span, frame) +
         rectangle(left, Frame::y(row), width, kBar,
                   std::string("fill=\"") + look_of(action.op).fill + "\" stroke=\"#333\" stroke-width=\"0.5\"");
  if (width > 7.0 * static_cast<double>(words.size()))
    out += words_at(left + width / 2, Frame::y(row) + 16, words, "middle");
  out += "</g>\n";
}

void draw_collective(const Action& action, Span span, const Frame& frame, size_t row, std::string& out) {
  const double left = frame.x(span.start), width = frame.x(span.end) - left;
  if (width <= 0) return;
  out += title_of(action, span, frame) +
         rectangle(left, Frame::y(row) + kBar + 1, width, kThinBar,
                   std::string("fill=\"") + look_of(action.op).fill + "\"") +
         "</g>\n";
}

/// A line from the sender's row to the receiver's, over the time of the transfer.
void draw_transfer(Span span, const Frame& frame, size_t from, size_t to, std::string& out) {
  if (from == to) return;
  const double y1 = Frame::y(from) + kBar / 2, y2 = Frame::y(to) + kBar / 2;
  out += "<line x1=\"" + fixed_point(frame.x(span.start)) + "\" y1=\"" + fixed_point(y1) + "\" x2=\"" +
         fixed_point(frame.x(span.end)) + "\" y2=\"" + fixed_point(y2) + "\" stroke=\"#555\" stroke-width=\"0.7\"/>\n";
}

/// Short enough to stand beside a row: "256 of 1000 to 2020" where the devices do not follow each other.
std::string devices_beside(const Schedule& schedule, const DeviceGroup& group) {
  constexpr size_t kMaxLetters = 20;
  std::string names = device_names(schedule, group);
  if (names.size() <= kMaxLetters) return names;
  const auto number = [&](size_t program) { return schedule.programs[program].device.index(); };
  const auto [first, last] = std::ranges::minmax(group.programs, {}, number);
  return std::to_string(group.programs.size()) + " of " + std::to_string(number(first)) + " to " +
         std::to_string(number(last));
}

/// The devices, and below them their stages.
std::string row_name(const Schedule& schedule, const DeviceGroup& group, const StageNames& names, size_t row) {
  const std::vector<size_t> stages = stages_of(schedule.programs[group.programs.front()]);
  std::string below = stages.size() > 1 ? "stages" : "stage";
  constexpr size_t kMaxNamed = 5;
  for (size_t i = 0; i < stages.size() && i < kMaxNamed; ++i)
    below += (i == 0 ? " " : ", ") + std::to_string(stages[i]);
  if (stages.size() > kMaxNamed) below += ", ...";
  if (stages.size() == 1 && stages.front() < names.size()) below += ": " + names[stages.front()].str();
  std::string out = words_at(4, Frame::y(row) + 11, devices_beside(schedule, group));
  if (!stages.empty()) out += "<g font-size=\"10\">" + words_at(4, Frame::y(row) + 24, below) + "</g>";
  return out;
}

std::string every_action(const StageGraph& graph, const Schedule& schedule, const Timeline& timeline,
                         const StageNames& names, const Rows& rows, const Frame& frame) {
  const bool with_stage = has_several_stages(schedule);
  std::string bars, lines;
  for (size_t row = 0; row < rows.groups.size(); ++row) {
    const size_t program_id = rows.groups[row].programs.front();
    const ir::Program& program = schedule.programs[program_id];
    bars += row_name(schedule, rows.groups[row], names, row);
    for (size_t i = 0; i < program.actions.size(); ++i) {
      const Action& action = program.actions[i];
      const Span span = timeline.spans[program_id][i];
      if (is_drawn(action.op)) draw_bar(action, span, words_in(graph, action, with_stage), frame, row, bars);
      if (is_collective(action.op)) draw_collective(action, span, frame, row, bars);
      const ActionPlace cause = timeline.causes[program_id][i];
      // The cause of a receive is its send.
      if (ir::is_receive(action.op) && cause.program >= 0)
        draw_transfer(timeline.spans[static_cast<size_t>(cause.program)][static_cast<size_t>(cause.position)], frame,
                      rows.row_of[static_cast<size_t>(cause.program)], row, lines);
    }
  }
  return lines + bars;  // where many messages cross a bar, its words stay readable
}

/// The mean busy time of the devices of these groups in each column of the picture, as a share of it.
std::array<double, kBusyColumns> busy_share(const Schedule& schedule, const Timeline& timeline,
                                            std::span<const DeviceGroup> groups, double width) {
  std::array<double, kBusyColumns> share{};
  size_t devices = 0;
  for (const DeviceGroup& group : groups) {
    // The first program stands for all of its group.
    const size_t program = group.programs.front();
    const auto count = static_cast<double>(group.programs.size());
    devices += group.programs.size();
    for (size_t i = 0; i < schedule.programs[program].actions.size(); ++i) {
      if (!is_drawn(schedule.programs[program].actions[i].op)) continue;
      const Span span = timeline.spans[program][i];
      const double from = static_cast<double>(span.start.count) / width,
                   to = static_cast<double>(span.end.count) / width;
      for (int c = static_cast<int>(from); c < kBusyColumns && c < to; ++c)
        share[static_cast<size_t>(c)] += count * (std::min(to, c + 1.0) - std::max(from, static_cast<double>(c)));
    }
  }
  for (double& column : share) column /= static_cast<double>(devices);
  return share;
}

std::string busy_rows(const Schedule& schedule, const Timeline& timeline, const Rows& rows, const Frame& frame,
                      size_t height) {
  const double cell = (kWidth - kLeft - kRight) / kBusyColumns;
  std::string out;
  for (size_t row = 0; row < height; ++row) {
    const size_t first = row * rows.groups.size() / height, end = (row + 1) * rows.groups.size() / height;
    const std::span<const DeviceGroup> groups(&rows.groups[first], end - first);
    DeviceGroup all;
    for (const DeviceGroup& group : groups)
      all.programs.insert(all.programs.end(), group.programs.begin(), group.programs.end());
    out += words_at(4, Frame::y(row) + 16, devices_beside(schedule, all));
    const auto share = busy_share(schedule, timeline, groups, frame.end() / kBusyColumns);
    for (size_t c = 0; c < share.size(); ++c)
      if (share[c] > 0.005)
        out += rectangle(kLeft + cell * static_cast<double>(c), Frame::y(row), cell, kBar,
                         "fill=\"#08519c\" fill-opacity=\"" + fixed_point(share[c]) + "\"");
    out += "\n";
  }
  return out;
}

}  // namespace

TimeAxis axis_of_seconds(Ticks makespan) {
  const double seconds = static_cast<double>(makespan.count) / kTicksPerSecond;
  if (seconds >= 1) return {.ticks_per_unit = kTicksPerSecond, .unit = " s"};
  if (seconds >= 1e-3) return {.ticks_per_unit = kTicksPerSecond / 1e3, .unit = " ms"};
  return {.ticks_per_unit = kTicksPerSecond / 1e6, .unit = " us"};
}

std::string gantt_svg(const StageGraph& graph, const Schedule& schedule, const Timeline& timeline, const TimeAxis& axis,
                      const StageNames& names) {
  const Rows rows(graph, schedule, timeline);
  const bool each = rows.groups.size() <= kMaxDrawnRows && rows.actions <= kMaxDrawnActions;
  const size_t height = std::min(rows.groups.size(), kMaxDrawnRows);
  const Frame frame(timeline, axis, height);
  std::string out = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + fixed_point(kWidth) + " " +
                    fixed_point(frame.height()) + "\" width=\"" + fixed_point(kWidth) + "\" height=\"" +
                    fixed_point(frame.height()) +
                    "\" role=\"img\" font-family=\"sans-serif\" font-size=\"12\">\n<title>Timeline of " +
                    std::to_string(schedule.programs.size()) + " devices over " + frame.time(timeline.makespan) +
                    "</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n";
  out += each ? legend(schedule) : words_at(kLeft, 14, "the darker, the more of the devices of a row are busy");
  out += frame.grid();
  out += each ? every_action(graph, schedule, timeline, names, rows, frame)
              : busy_rows(schedule, timeline, rows, frame, height);
  return out + "</svg>\n";
}

}  // namespace graphpipe::scheduler
