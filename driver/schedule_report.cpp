#include "driver/schedule_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "driver/report.h"
#include "driver/timeline_report.h"
#include "scheduler/start_slack.h"

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
    // Tokens are letters and digits.
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

/// The longest span where every device starts as late as it may.
double delayed_span(const ScheduleStudy& study) {
  const Ticks span = scheduler::longest_delayed_span(study.graph, study.schedule, study.timeline);
  return static_cast<double>(span.count) / scheduler::kTicksPerUnit;
}

}  // namespace

std::string study_text(const ScheduleStudy& study) {
  const scheduler::StudyFigures& figures = study.figures;
  std::string out =
      fmt::format("makespan {:g}, lower bound {:g} ({:.1f} % above it)\n", figures.makespan, figures.lower_bound,
                  figures.lower_bound > 0 ? 100 * (figures.makespan / figures.lower_bound - 1) : 0.0);
  out += fmt::format("idle {:.1f} % of the makespan; {:.1f} % of the longest span of a device, {:g}\n",
                     100 * figures.bubble_fraction, 100 * figures.bubble_fraction_of_span, figures.longest_rank_span);
  if (const double span = delayed_span(study); span < figures.longest_rank_span)
    out += fmt::format("with every start as late as it may be, the longest span is {:g}\n", span);
  out += fmt::format("samples in flight per stage: {}\n", joined(figures.in_flight_samples));
  out += fmt::format("most items held per device: {} from F to W, {} from F to I\n",
                     joined(figures.peak_to_weight_gradient), joined(figures.peak_to_input_gradient));
  return out + timeline_text(study.graph, study.schedule, study.timeline, kUnits);
}

void add_figures(JsonObject& object, const ScheduleStudy& study) {
  const scheduler::StudyFigures& figures = study.figures;
  object.add("makespan", figures.makespan).add("longest_rank_span", figures.longest_rank_span);
  object.add("longest_rank_span_delayed", delayed_span(study));
  object.add("bubble_fraction", figures.bubble_fraction);
  object.add("bubble_fraction_of_span", figures.bubble_fraction_of_span);
  object.add("lower_bound", figures.lower_bound);
  object.add("peak_F_to_W", wide(figures.peak_to_weight_gradient));
  object.add("peak_F_to_I", wide(figures.peak_to_input_gradient));
}

void add_study_timeline(JsonObject& object, const ScheduleStudy& study) {
  add_timeline(object, study.graph, study.schedule, study.timeline, kUnits);
}

JsonObject study_json(const ScheduleStudy& study) {
  JsonObject object;
  object.add("policy", study.schedule.policy).add("ranks", study.schedule.programs.size());
  object.add("stages", study.graph.stages.size()).add("micro_batches", ir::most_micro_batches(study.graph));
  object.add("batch", study.graph.batch.count);
  object.add("in_flight_samples", study.figures.in_flight_samples);
  object.add_json("lists", lists_json(scheduler::stage_lists(study.graph, study.schedule)));
  add_figures(object, study);
  if (!study.figures.warm_up.empty()) {
    object.add("warm_up", study.figures.warm_up);
    object.add("w_lag", study.figures.weight_lag);
  }
  object.add_json("programs", lists_json(device_lists(study.schedule)));
  object.add("slots", wide({study.schedule.slots.begin(), study.schedule.slots.end()}));
  std::vector<int64_t> starts;
  for (const Ticks start : study.schedule.starts) starts.push_back(start.count);
  if (!starts.empty()) object.add("starts", starts);
  add_study_timeline(object, study);
  return object;
}

}  // namespace graphpipe::driver
