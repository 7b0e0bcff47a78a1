#include "driver/report/schedule_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "driver/report/report.h"
#include "driver/report/timeline_report.h"
#include "scheduler/analysis/start_slack.h"

namespace graphpipe::driver {
namespace {

std::string plain(double value) { return fmt::format("{:g}", value); }
constexpr TimeScale kUnits = {.ticks_per_unit = scheduler::kTicksPerUnit, .shown = plain};

std::vector<int64_t> wide(const std::vector<int>& numbers) { return {numbers.begin(), numbers.end()}; }

template <typename T>
std::string joined(const std::vector<T>& numbers) {
  return fmt::format("{}", fmt::join(numbers, " "));
}

std::string lists_json(const std::vector<std::vector<std::string>>& lists) {
  std::string out = "[";
  for (const std::vector<std::string>& list : lists) {
    out += out.size() > 1 ? ", [" : "[";
    // Tokens are letters and digits, so nothing needs an escape.
    if (!list.empty()) out += fmt::format("\"{}\"", fmt::join(list, "\", \""));
    out += "]";
  }
  return out + "]";
}

std::vector<std::vector<std::string>> device_lists(const ir::Schedule& schedule) {
  std::vector<std::vector<std::string>> lists;
  for (const ir::Program& program : schedule.programs) {
    std::vector<std::string>& list = lists.emplace_back();
    for (const ir::Action& action : program.actions) list.push_back(ir::print_action(action));
  }
  return lists;
}

/// The longest span of a device if every device starts as late as it may.
double delayed_span(const StandaloneSchedule& standalone) {
  const Ticks span = scheduler::longest_delayed_span(standalone.graph, standalone.schedule, standalone.timeline);
  return static_cast<double>(span.count) / scheduler::kTicksPerUnit;
}

}  // namespace

std::string standalone_text(const StandaloneSchedule& standalone) {
  const scheduler::ScheduleMetrics& metrics = standalone.metrics;
  std::string out =
      fmt::format("makespan {:g}, lower bound {:g} ({:.1f} % above it)\n", metrics.makespan, metrics.lower_bound,
                  metrics.lower_bound > 0 ? 100 * (metrics.makespan / metrics.lower_bound - 1) : 0.0);
  out += fmt::format("idle {:.1f} % of the makespan; {:.1f} % of the longest span of a device, {:g}\n",
                     100 * metrics.bubble_fraction, 100 * metrics.bubble_fraction_of_span, metrics.longest_rank_span);
  if (const double span = delayed_span(standalone); span < metrics.longest_rank_span)
    out += fmt::format("with every start as late as it may be, the longest span is {:g}\n", span);
  out += fmt::format("samples in flight per stage: {}\n", joined(metrics.in_flight_samples));
  out += fmt::format("most items held per device: {} from F to W, {} from F to I\n",
                     joined(metrics.peak_to_weight_gradient), joined(metrics.peak_to_input_gradient));
  return out + timeline_text(standalone.graph, standalone.schedule, standalone.timeline, kUnits);
}

void add_metrics(JsonObject& object, const StandaloneSchedule& standalone) {
  const scheduler::ScheduleMetrics& metrics = standalone.metrics;
  object.add("makespan", metrics.makespan).add("longest_rank_span", metrics.longest_rank_span);
  object.add("longest_rank_span_delayed", delayed_span(standalone));
  object.add("bubble_fraction", metrics.bubble_fraction);
  object.add("bubble_fraction_of_span", metrics.bubble_fraction_of_span);
  object.add("lower_bound", metrics.lower_bound);
  object.add("peak_F_to_W", wide(metrics.peak_to_weight_gradient));
  object.add("peak_F_to_I", wide(metrics.peak_to_input_gradient));
}

void add_standalone_timeline(JsonObject& object, const StandaloneSchedule& standalone) {
  add_timeline(object, standalone.graph, standalone.schedule, standalone.timeline, kUnits);
}

JsonObject standalone_json(const StandaloneSchedule& standalone) {
  JsonObject object;
  object.add("policy", standalone.schedule.policy).add("ranks", standalone.schedule.programs.size());
  object.add("stages", standalone.graph.stages.size()).add("micro_batches", ir::max_micro_batches(standalone.graph));
  object.add("batch", standalone.graph.batch.count);
  object.add("in_flight_samples", standalone.metrics.in_flight_samples);
  object.add_json("lists", lists_json(scheduler::stage_lists(standalone.graph, standalone.schedule)));
  add_metrics(object, standalone);
  if (!standalone.metrics.warm_up.empty()) {
    object.add("warm_up", standalone.metrics.warm_up);
    object.add("w_lag", standalone.metrics.weight_lag);
  }
  object.add_json("programs", lists_json(device_lists(standalone.schedule)));
  object.add("slots", wide({standalone.schedule.slots.begin(), standalone.schedule.slots.end()}));
  std::vector<int64_t> starts;
  for (const Ticks start : standalone.schedule.starts) starts.push_back(start.count);
  if (!starts.empty()) object.add("starts", starts);
  add_standalone_timeline(object, standalone);
  return object;
}

}  // namespace graphpipe::driver
