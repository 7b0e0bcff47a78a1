#include "driver/report/html/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "cost/limits.h"
#include "driver/pipeline/decision_costs.h"
#include "driver/report/html/device_pictures.h"
#include "driver/report/html/html.h"
#include "driver/report/html/stage_picture.h"
#include "driver/report/html/step_bars.h"
#include "driver/report/html/timeline_picture.h"
#include "driver/report/plan_report.h"
#include "driver/report/report.h"
#include "support/median.h"
#include "wire/version.h"

namespace graphpipe::driver {
namespace {

std::string shown_seconds(double value) { return html_text(human_seconds(value)); }

double idle_share(const Pipeline& pipeline) {
  return scheduler::metrics_of(pipeline.built.schedule, pipeline.built.timeline).bubble_of_makespan;
}

double fullest_bytes(const Pipeline& pipeline) {
  int64_t peak = 0;
  for (const scheduler::DeviceMemory& memory : pipeline.built.memory) peak = std::max(peak, memory.peak.count);
  return static_cast<double>(peak);
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
    const double measured = median(plan.measured.step_seconds);
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
                                html_text(policy_words(pipeline)), pipeline.plan.batch.count,
                                counted(pipeline.built.schedule.programs.size(), "device"),
                                counted(pipeline.stages.stages.size(), "stage"),
                                pipeline.plan.execution == ir::Execution::kChain ? ", executed as a chain" : "");
  if (pipeline.built.batches > 1)
    out += fmt::format("<p>The pipeline drains every {} steps: timeline, idle time and memory are of these {}.</p>\n",
                       pipeline.built.batches, pipeline.built.batches);
  if (pipeline.steady)
    out += fmt::format("<p>Where batches follow each other without draining: {} per batch, {} per update {}.</p>\n",
                       shown_seconds(pipeline.steady->step_seconds), shown_seconds(pipeline.steady->update_seconds),
                       origin_mark(Origin::kSimulated));
  const auto over = [&](double bound) { return bound > 0 ? 100 * (step / bound - 1) : 0.0; };
  out += fmt::format(
      "<p>No order of these stages takes less than {} (this one {:.1f} % more), and no plan of this model on these "
      "devices less than {} "
      "({:.1f} % more) {}.</p>\n",
      shown_seconds(pipeline.step_bound), over(pipeline.step_bound), shown_seconds(pipeline.model_bound),
      over(pipeline.model_bound), origin_mark(Origin::kSimulated));
  const cost::Limit limit = limit_of(pipeline);
  out += "<p>Limited by " + html_text(limit.sentence) + " " + origin_mark(Origin::kSimulated) + ".</p>\n";
  const bool measured_prices = !pipeline.plan.profile_digest.empty();
  const ir::Device& device = pipeline.plan.cluster.devices[ir::DeviceId(0u)];
  out += fmt::format("<p>Prices of operators: {} {}. Memory of a device: {} {}.</p>\n",
                     measured_prices ? "from a profile" : "from the machine's rates",
                     origin_mark(measured_prices ? Origin::kMeasured : Origin::kAssumed),
                     html_text(human_bytes(static_cast<double>(device.memory.count))), origin_mark(Origin::kAssumed));
  return out;
}

/// The bounds, the step, the measured one, and the step with each decision taken back.
std::vector<StepBar> compared_steps(const ReportedPlan& plan, const std::vector<DecisionCost>& costs) {
  const Pipeline& pipeline = plan.pipeline;
  std::vector<StepBar> bars;
  if (pipeline.model_bound > 0)
    bars.push_back({"bound of any plan on these devices", pipeline.model_bound, BarLook::kBound});
  if (pipeline.step_bound > 0)
    bars.push_back({"bound of any order of these stages", pipeline.step_bound, BarLook::kBound});
  bars.push_back({"this plan, simulated", pipeline.built.step_seconds(), BarLook::kThisPlan});
  if (!plan.measured.step_seconds.empty())
    bars.push_back({"this plan, measured", median(plan.measured.step_seconds), BarLook::kMeasured});
  for (const DecisionCost& cost : costs)
    if (cost.step_seconds > 0) bars.push_back({html_text(cost.instead), cost.step_seconds, BarLook::kOther});
  return bars;
}

std::string decisions(const ReportedPlan& plan, const PartOf& part, std::string_view heading) {
  const double step = plan.pipeline.built.step_seconds();
  if (step <= 0) return "";
  const std::vector<DecisionCost> costs = decision_costs(plan.pipeline);
  std::vector<std::vector<std::string>> rows{{"instead", "step", "more than this plan"}};
  for (const DecisionCost& cost : costs)
    rows.push_back(cost.step_seconds > 0
                       ? std::vector<std::string>{html_text(cost.instead), shown_seconds(cost.step_seconds),
                                                  fmt::format("{:+.1f} %", 100 * (cost.step_seconds / step - 1))}
                       : std::vector<std::string>{html_text(cost.instead), "-", html_text(cost.why_not)});
  std::string out =
      fmt::format("<{0}>What each decision is worth {1}</{0}>\n", heading, origin_mark(Origin::kSimulated));
  out += step_bars("This step" + part.words + ", its bounds, and the same stages with one decision taken back",
                   compared_steps(plan, costs));
  return rows.size() == 1 ? out : out + html_table("The same stages with one decision taken back" + part.words, rows);
}

std::string chapter(const ReportedPlan& plan, size_t number, bool is_one_of_several) {
  const Pipeline& pipeline = plan.pipeline;
  PartOf part;
  if (is_one_of_several) part = {fmt::format("plan-{}-", number), fmt::format(" of plan {}", number + 1)};
  const std::string_view heading = is_one_of_several ? "h3" : "h2";
  const auto headed = [&](std::string_view name, const std::string& mark) {
    return fmt::format("<{0}>{1}{2}</{0}>\n", heading, name, mark);
  };
  std::string out;
  if (is_one_of_several) out += fmt::format("<h2 id=\"plan-{}\">{}</h2>\n", number, html_text(plan.name));
  out += figures(plan) + in_words(pipeline);
  const std::string simulated = " " + origin_mark(Origin::kSimulated);
  out += headed("Stages", simulated) + stage_picture(pipeline, part) + stage_table(pipeline, part);
  out += headed("Timeline", simulated) + wide_part("Timeline" + part.words, timeline_picture(pipeline), "timeline");
  out += headed("Where the time goes", simulated) + idle_picture(pipeline, part);
  out += headed("Memory", simulated) + memory_pictures(pipeline);
  out += decisions(plan, part, heading);
  return out + headed("Operators of the stages", "") + stage_operators(pipeline, part);
}

constexpr size_t kMaxStepBars = 40;

std::string policy_cell(const Pipeline& pipeline) {
  return html_text(pipeline.plan.policy) + (is_made_a_chain(pipeline.stages) ? ", as a chain" : "");
}

/// A bar per plan, as long as its step.
std::string plan_bars(const std::vector<ReportedPlan>& plans) {
  std::vector<StepBar> bars;
  for (size_t i = 0; i < plans.size() && i < kMaxStepBars; ++i) {
    const Pipeline& pipeline = plans[i].pipeline;
    bars.push_back({fmt::format("{}: {}, {}", i + 1, html_text(pipeline.plan.planner), policy_cell(pipeline)),
                    pipeline.built.step_seconds(), BarLook::kOther});
  }
  const auto fastest = std::ranges::min_element(bars, {}, &StepBar::seconds);
  fastest->look = BarLook::kThisPlan;
  if (std::ranges::max(bars, {}, &StepBar::seconds).seconds <= 0) return "";
  const std::string out = step_bars("Simulated steps of the plans", bars);
  return bars.size() < plans.size() ? out + fmt::format("<p>The first {} of {} plans.</p>\n", bars.size(), plans.size())
                                    : out;
}

std::string plan_comparison(const std::vector<ReportedPlan>& plans) {
  std::vector<std::vector<std::string>> rows{
      {"", "plan", "planner", "policy", "stages", "devices", "step", "of the fastest", "idle", "fullest device"}};
  double fastest = kInfinity;
  for (const ReportedPlan& plan : plans) fastest = std::min(fastest, plan.pipeline.built.step_seconds());
  for (size_t i = 0; i < plans.size(); ++i) {
    const Pipeline& pipeline = plans[i].pipeline;
    const double step = pipeline.built.step_seconds();
    rows.push_back({std::to_string(i + 1), fmt::format("<a href=\"#plan-{}\">{}</a>", i, html_text(plans[i].name)),
                    html_text(pipeline.plan.planner), policy_cell(pipeline),
                    std::to_string(pipeline.stages.stages.size()),
                    std::to_string(pipeline.built.schedule.programs.size()), shown_seconds(step),
                    fmt::format("{:.3f}", step / fastest), fmt::format("{:.1f} %", 100 * idle_share(pipeline)),
                    html_text(human_bytes(fullest_bytes(pipeline)))});
  }
  return "<h2>Comparison " + origin_mark(Origin::kSimulated) + "</h2>\n" + plan_bars(plans) +
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
