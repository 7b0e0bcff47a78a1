#include "driver/report/html/device_pictures.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "driver/report/html/html.h"
#include "driver/report/report.h"
#include "scheduler/analysis/idle_time.h"
#include "scheduler/render/device_groups.h"

namespace graphpipe::driver {
namespace {

using scheduler::DeviceGroup;
using scheduler::IdleCause;
using scheduler::IdleTime;

constexpr size_t kMaxBars = 64, kMaxCurves = 12;
// Colours with hatching, so that they can be told apart in black and white too; in the order of the legend.
struct Hatching {
  std::string_view fill, lines;
};
constexpr Hatching kHatchings[scheduler::kIdleCauseCount + 1] = {
    {"#4292c6", ""},
    {"#c6dbef", "M-2 2L2 -2M0 8L8 0M6 10L10 6"},
    {"#fdd0a2", "M0 4H8"},
    {"#fdae6b", "M4 0V8"},
    {"#fff3c4", "M0 4H8M4 0V8"},
    {"#fd8d3c", "M-2 6L2 10M0 0L8 8M6 -2L10 2"},
    {"#d9d9d9", "M2 4H6"},
    {"#ffffff", "M0 1H8M0 5H8"},
};

std::string pattern_id(const PartOf& part, int cause) { return fmt::format("{}idle-{}", part.ids, cause); }

std::string name_of_time(int cause) {
  return std::string(cause == 0 ? "busy" : scheduler::idle_cause_name(static_cast<IdleCause>(cause - 1)));
}

// The shares of busy time and of each cause of idle time: means over the devices of a group.
std::vector<double> shares_of(const std::vector<IdleTime>& idle, const DeviceGroup& group, double whole) {
  std::vector<double> shares(1 + scheduler::kIdleCauseCount);
  for (const size_t program : group.programs)
    for (size_t cause = 0; cause < idle[program].size(); ++cause)
      shares[cause + 1] += static_cast<double>(idle[program][cause].count) / whole;
  for (double& share : shares) share /= static_cast<double>(group.programs.size());
  shares[0] = 1 - std::accumulate(shares.begin() + 1, shares.end(), 0.0);
  return shares;
}

// The places of the `count` largest values, ascending.
std::vector<size_t> largest(const std::vector<double>& values, size_t count) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater{}, [&](size_t i) { return values[i]; });
  order.resize(std::min(order.size(), count));
  std::ranges::sort(order);
  return order;
}

// Each swatch defines the pattern that the bars take.
std::string idle_legend(const PartOf& part) {
  std::string out = "<ul class=\"legend\" role=\"list\">\n";
  for (int i = 0; i <= scheduler::kIdleCauseCount; ++i)
    out += fmt::format(
        "<li><svg width=\"13\" height=\"13\" aria-hidden=\"true\"><title>{0}</title><pattern id=\"{1}\" width=\"8\" "
        "height=\"8\" patternUnits=\"userSpaceOnUse\"><rect width=\"8\" height=\"8\" fill=\"{2}\"/><path d=\"{3}\" "
        "stroke=\"#111\" stroke-width=\"0.8\"/></pattern><rect x=\"0.5\" y=\"0.5\" width=\"12\" height=\"12\" "
        "fill=\"url(#{1})\" stroke=\"#333\"/></svg> {0}</li>\n",
        name_of_time(i), pattern_id(part, i), kHatchings[i].fill, kHatchings[i].lines);
  return out + "</ul>\n";
}

/// As wide as its line; its title says what a screen reader reads.
std::string idle_bar(const std::string& devices, const std::vector<double>& shares, const PartOf& part) {
  std::string bars, words;
  double left = 0;
  for (int i = 0; i <= scheduler::kIdleCauseCount; ++i) {
    const double percent = 100 * shares[static_cast<size_t>(i)];
    if (percent <= 0) continue;
    const std::string cause = fmt::format("{} {:.1f} %", name_of_time(i), percent);
    bars += fmt::format(
        "<rect x=\"{:.3f}%\" width=\"{:.3f}%\" height=\"100%\" fill=\"url(#{})\" stroke=\"#333\" "
        "stroke-width=\"0.4\"><title>{}</title></rect>",
        left, percent, pattern_id(part, i), cause);
    words += (words.empty() ? "" : ", ") + cause;
    left += percent;
  }
  return fmt::format("<li><span class=\"name\">{0}</span> <svg role=\"img\"><title>{0}: {1}</title>{2}</svg></li>\n",
                     devices, words, bars);
}

/// `name` is that of the devices for which the program stands.
std::string memory_curve(const Pipeline& pipeline, size_t program, const std::string& name) {
  constexpr double kWidth = 360, kHeight = 110, kBottom = 90, kTop = 14, kEnd = 350, kBegin = 6;
  const auto& built = pipeline.built;
  const ir::DeviceId device = built.schedule.programs[program].device;
  const auto limit = static_cast<double>(pipeline.plan.cluster.devices[device].memory.count);
  const auto peak = static_cast<double>(built.memory[program].peak.count);
  // The limit is drawn where it is near enough to matter.
  const double top = limit < 4 * peak ? std::max(limit, peak) : peak * 1.1;
  const auto span = static_cast<double>(std::max<int64_t>(1, built.timeline.makespan.count));
  const auto y = [&](double bytes) { return kBottom - (kBottom - kTop) * bytes / std::max(top, 1.0); };
  std::string points;
  double before = y(static_cast<double>(built.memory[program].fixed.count));
  for (const scheduler::MemoryPoint& point : scheduler::memory_over_time(
           built.memory[program], built.schedule.programs[program], built.timeline.spans[program])) {
    const double x = kBegin + (kEnd - kBegin) * static_cast<double>(point.time.count) / span;
    points += fmt::format("{:.1f},{:.1f} ", x, before);
    before = y(static_cast<double>(point.bytes.count));
    points += fmt::format("{:.1f},{:.1f} ", x, before);
  }
  points += fmt::format("{:.1f},{:.1f}", kEnd, before);
  const std::string shown = html_text(human_bytes(peak)), of = html_text(human_bytes(limit));
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" role=\"img\" "
      "font-family=\"sans-serif\" font-size=\"12\"><title>Memory of {2} over {9}: peak {3} of {4}</title>"
      "<text x=\"{5}\" y=\"10\">{2}: peak {3} of {4}</text><line x1=\"{5}\" y1=\"{6}\" x2=\"{7}\" y2=\"{6}\" "
      "stroke=\"#333\"/>"
      "<polyline points=\"{8}\" fill=\"none\" stroke=\"#08519c\" stroke-width=\"1.5\"/>",
      kWidth, kHeight, name, shown, of, kBegin, kBottom, kEnd, points,
      built.batches > 1 ? text(built.batches, " steps") : "the step");
  if (limit <= top)
    out += fmt::format(
        "<line x1=\"{0}\" y1=\"{1:.1f}\" x2=\"{2}\" y2=\"{1:.1f}\" stroke=\"#a63603\" stroke-dasharray=\"4 3\"/>",
        kBegin, y(limit), kEnd);
  return out +
         fmt::format("<text x=\"{}\" y=\"104\">0</text><text x=\"{}\" y=\"104\" text-anchor=\"end\">{}</text></svg>\n",
                     kBegin, kEnd, html_text(human_seconds(span / scheduler::kTicksPerSecond)));
}

std::string idle_numbers(const std::vector<std::string>& devices, const std::vector<std::vector<double>>& shares,
                         const PartOf& part) {
  std::vector<std::vector<std::string>> rows{{"device"}};
  for (int i = 0; i <= scheduler::kIdleCauseCount; ++i) rows[0].push_back(name_of_time(i));
  for (size_t row = 0; row < devices.size(); ++row) {
    rows.push_back({devices[row]});
    for (const double share : shares[row]) rows.back().push_back(fmt::format("{:.1f} %", 100 * share));
  }
  return "<details><summary>The same in numbers</summary>\n" +
         html_table("How the devices spend the step" + part.words + ", in numbers", rows) + "</details>\n";
}

}  // namespace

std::string idle_picture(const Pipeline& pipeline, const PartOf& part) {
  const auto& built = pipeline.built;
  const std::vector<IdleTime> idle = scheduler::idle_time(pipeline.stages, built.schedule, built.timeline);
  const std::vector<DeviceGroup> groups = scheduler::device_groups(pipeline.stages, built.schedule, built.timeline);
  const auto whole = static_cast<double>(std::max<int64_t>(1, built.timeline.makespan.count));
  std::vector<double> idlest;
  for (const DeviceGroup& group : groups) idlest.push_back(1 - shares_of(idle, group, whole)[0]);
  const std::vector<size_t> shown = largest(idlest, kMaxBars);
  std::string out = "<div class=\"idle\">\n" + idle_legend(part) + "<ul class=\"bars\" role=\"list\">\n";
  std::vector<std::string> devices;
  std::vector<std::vector<double>> shares;
  for (const size_t group : shown) {
    devices.push_back(scheduler::device_names(built.schedule, groups[group]));
    shares.push_back(shares_of(idle, groups[group], whole));
    out += idle_bar(devices.back(), shares.back(), part);
  }
  out += "</ul></div>\n" + idle_numbers(devices, shares, part);
  if (groups.size() < idle.size()) out += "<p>Devices that do the same are one bar, the mean of them.</p>\n";
  if (shown.size() < groups.size())
    out += fmt::format("<p>The {} of {} bars that are idle longest.</p>\n", shown.size(), groups.size());
  return out;
}

std::string memory_pictures(const Pipeline& pipeline) {
  const auto peak_of = [&](size_t program) { return pipeline.built.memory[program].peak.count; };
  const std::vector<DeviceGroup> groups =
      scheduler::device_groups(pipeline.stages, pipeline.built.schedule, pipeline.built.timeline);
  std::vector<size_t> fullest;
  std::vector<double> peaks;
  for (const DeviceGroup& group : groups) {
    fullest.push_back(*std::ranges::max_element(group.programs, {}, peak_of));
    peaks.push_back(static_cast<double>(peak_of(fullest.back())));
  }
  const std::vector<size_t> shown = largest(peaks, kMaxCurves);
  std::string out = "<div class=\"memory\">\n";
  for (const size_t group : shown)
    out += memory_curve(pipeline, fullest[group], scheduler::device_names(pipeline.built.schedule, groups[group]));
  out += "</div>\n";
  if (groups.size() < pipeline.built.memory.size()) out += "<p>Of devices that do the same the fullest is shown.</p>\n";
  if (shown.size() < peaks.size())
    out += fmt::format("<p>The {} of {} curves that are highest.</p>\n", shown.size(), peaks.size());
  return out;
}

}  // namespace graphpipe::driver
