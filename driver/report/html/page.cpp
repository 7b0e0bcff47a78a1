#include "driver/report/html/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "cost/limits.h"
#include "driver/report/html/device_pictures.h"
#include "driver/report/html/html.h"
#include "driver/report/html/stage_picture.h"
#include "driver/report/report.h"
#include "scheduler/render/gantt.h"
#include "wire/version.h"

namespace graphpipe::driver {
namespace {

std::string shown_seconds(double value) { return html_text(human_seconds(value)); }

double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

double idle_share(const Pipeline& pipeline) {
  return scheduler::metrics_of(pipeline.built.schedule, pipeline.built.timeline).bubble_of_makespan;
}

double fullest_bytes(const Pipeline& pipeline) {
  int64_t peak = 0;
  for (const scheduler::DeviceMemory& memory : pipeline.built.memory) peak = std::max(peak, memory.peak.count);
  return static_cast<double>(peak);
}

std::string counted(size_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string key_figure(const std::string& name, const std::string& value, Origin origin) {
  return fmt::format("<li>{} {}<b>{}</b></li>\n", name, origin_mark(origin), value);
}

std::string figures(const ReportedPlan& plan) {
  const Pipeline& pipeline = plan.pipeline;
  const double step = pipeline.built.step_seconds();
  std::string out = "<ul class=\"figures\">\n";
  out += key_figure("step", shown_seconds(step), Origin::kSimulated);
  if (!plan.measured.step_seconds.empty()) {
    const double measured = median_of(plan.measured.step_seconds);
    out += key_figure("step, median", shown_seconds(measured), Origin::kMeasured);
    out += key_figure("measured / simulated", fmt::format("{:.2f}", measured / step), Origin::kMeasured);
  }
  out += key_figure("samples per second", html_text(human_count(static_cast<double>(pipeline.plan.batch.count) / step)),
                    Origin::kSimulated);
  out += key_figure("devices idle", fmt::format("{:.1f} %", 100 * idle_share(pipeline)), Origin::kSimulated);
  out += key_figure("fullest device", html_text(human_bytes(fullest_bytes(pipeline))), Origin::kSimulated);
  return out + "</ul>\n";
}

std::string in_words(const Pipeline& pipeline) {
  const double step = pipeline.built.step_seconds();
  std::string out = fmt::format("<p>Planner {}, policy {}, batch {}, {}, {}{}.</p>\n", html_text(pipeline.plan.planner),
                                html_text(pipeline.plan.policy), pipeline.plan.batch.count,
                                counted(pipeline.built.schedule.programs.size(), "device"),
                                counted(pipeline.stages.stages.size(), "stage"),
                                pipeline.plan.execution == ir::Execution::kChain ? ", executed as a chain" : "");
  const auto over = [&](double bound) { return bound > 0 ? 100 * (step / bound - 1) : 0.0; };
  out += fmt::format(
      "<p>No order of these stages takes less than {} (this one {:.1f} % more), and no plan of this model on these "
      "devices less than {} "
      "({:.1f} % more).</p>\n",
      shown_seconds(pipeline.step_bound), over(pipeline.step_bound), shown_seconds(pipeline.model_bound),
      over(pipeline.model_bound));
  const cost::Limit limit = cost::limit_of(pipeline.stages, pipeline.plan.cluster, step);
  out += "<p>Limited by " + html_text(limit.sentence) + ".</p>\n";
  const bool measured_prices = !pipeline.plan.profile_digest.empty();
  const ir::Device& device = pipeline.plan.cluster.devices[ir::DeviceId(0u)];
  out += fmt::format("<p>Prices of operators: {} {}. Memory of a device: {} {}.</p>\n",
                     measured_prices ? "from a profile" : "from the machine's rates",
                     origin_mark(measured_prices ? Origin::kMeasured : Origin::kAssumed),
                     html_text(human_bytes(static_cast<double>(device.memory.count))), origin_mark(Origin::kAssumed));
  return out;
}

std::string chapter(const ReportedPlan& plan, size_t number, bool is_one_of_several) {
  const Pipeline& pipeline = plan.pipeline;
  const std::string prefix = is_one_of_several ? fmt::format("plan-{}-", number) : "";
  std::string out;
  if (is_one_of_several) out += fmt::format("<h2 id=\"plan-{}\">{}</h2>\n", number, html_text(plan.name));
  out += figures(plan) + in_words(pipeline);
  out += "<h2>Stages</h2>\n" + stage_picture(pipeline, prefix) + stage_sections(pipeline, prefix, plan.modules);
  const std::string simulated = " " + origin_mark(Origin::kSimulated);
  out += "<h2>Timeline" + simulated + "</h2>\n<div class=\"wide timeline\" tabindex=\"0\">" +
         scheduler::gantt_svg(pipeline.stages, pipeline.built.schedule, pipeline.built.timeline,
                              {.ticks_per_unit = scheduler::kTicksPerSecond / 1e3, .unit = " ms"}) +
         "</div>\n";
  out += "<h2>Where the time goes" + simulated + "</h2>\n" + idle_picture(pipeline);
  return out + "<h2>Memory" + simulated + "</h2>\n" + memory_pictures(pipeline);
}

std::string plan_comparison(const std::vector<ReportedPlan>& plans) {
  std::vector<std::vector<std::string>> rows{
      {"plan", "planner", "policy", "stages", "devices", "step", "of the fastest", "idle", "fullest device"}};
  double fastest = kInfinity;
  for (const ReportedPlan& plan : plans) fastest = std::min(fastest, plan.pipeline.built.step_seconds());
  for (size_t i = 0; i < plans.size(); ++i) {
    const Pipeline& pipeline = plans[i].pipeline;
    const double step = pipeline.built.step_seconds();
    rows.push_back({fmt::format("<a href=\"#plan-{}\">{}</a>", i, html_text(plans[i].name)),
                    html_text(pipeline.plan.planner), html_text(pipeline.plan.policy),
                    std::to_string(pipeline.stages.stages.size()),
                    std::to_string(pipeline.built.schedule.programs.size()), shown_seconds(step),
                    fmt::format("{:.3f}", step / fastest), fmt::format("{:.1f} %", 100 * idle_share(pipeline)),
                    html_text(human_bytes(fullest_bytes(pipeline)))});
  }
  return "<h2>Comparison " + origin_mark(Origin::kSimulated) + "</h2>\n" +
         html_table("Plans by their simulated step", rows);
}

}  // namespace

std::string report_page(const std::vector<ReportedPlan>& plans) {
  std::string body;
  if (plans.size() > 1) body += plan_comparison(plans);
  for (size_t i = 0; i < plans.size(); ++i) body += chapter(plans[i], i, plans.size() > 1);
  body += fmt::format("<p>graphpipe {}</p>\n", wire::kToolVersion);
  const std::string title =
      plans.size() == 1 ? "Pipeline plan " + plans.front().name : fmt::format("{} pipeline plans", plans.size());
  return html_page(title, body);
}

}  // namespace graphpipe::driver
