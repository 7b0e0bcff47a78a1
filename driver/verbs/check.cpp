// graphpipe check: whether a schedule that somebody wrote can run, and what it costs.

#include <fmt/format.h>

#include <algorithm>
#include <iostream>

#include "driver/cli/commands.h"
#include "driver/cli/usage.h"
#include "driver/pipeline/order_file.h"
#include "driver/report/report.h"
#include "driver/report/schedule_report.h"
#include "scheduler/standalone/infer_stages.h"
#include "wire/exit_codes.h"

namespace graphpipe::driver {
namespace {

template <typename Matches>
bool any_action(const ir::Schedule& schedule, Matches matches) {
  return std::ranges::any_of(schedule.programs,
                             [&](const ir::Program& program) { return std::ranges::any_of(program.actions, matches); });
}

scheduler::VersionClaims claims_of(const ScheduleOptions& options) {
  const auto says = [&](const char* claim) { return std::ranges::find(options.claims, claim) != options.claims.end(); };
  return {.synchronous = says("synchronous"),
          .vertical_sync = says("vertical-sync"),
          .delayed_updates = says("2bw"),
          .max_versions = options.max_versions};
}

// A schedule without updates would satisfy every claim, since its weights never change.
Status check_has_versions(const ScheduleOptions& options, const ir::Schedule& schedule) {
  const bool claims = !options.claims.empty();
  if (!claims && options.max_versions == 0) return Ok{};
  if (any_action(schedule, [](const ir::Action& action) { return action.op == ir::ActionOp::kStep; })) return Ok{};
  return usage(claims ? "--claim" : "--max-versions",
               "the file does not say weight versions: it has no STEP, so nothing can be proven of them",
               "write the schedule with its updates: --format ir, proto, pb or json of an asynchronous policy");
}

/// Where a problem is, in the terms of the file: rank, position in its line, token.
struct Offence {
  int64_t rank = -1, position = -1;
  std::string action;
};

Offence offence_of(const Orders& orders, const scheduler::ScheduleProblem& problem) {
  Offence offence;
  if (problem.program < 0 || static_cast<size_t>(problem.program) >= orders.schedule.programs.size()) return offence;
  const auto p = static_cast<size_t>(problem.program);
  offence.rank = static_cast<int64_t>(orders.schedule.programs[p].device.index());
  if (problem.position < 0) return offence;
  const auto i = static_cast<size_t>(problem.position);
  const std::vector<ir::Action>& actions = orders.schedule.programs[p].actions;
  const bool has_cells = !orders.cell_of.empty();
  const auto cell_at = [&](size_t action) -> const files::CsvCell& {
    return orders.csv.ranks[p][static_cast<size_t>(orders.cell_of[p][action])];
  };
  offence.position = problem.position;
  if (has_cells && !actions.empty())
    offence.position = i < actions.size() ? cell_at(i).column : cell_at(i - 1).column + 1;
  if (problem.missing)
    offence.action = has_cells ? files::token_of(*problem.missing) : ir::print_action(*problem.missing);
  else offence.action = has_cells ? files::print_cell(cell_at(i)) : ir::print_action(actions[i]);
  return offence;
}

int report_offence(const Options& options, const Orders& orders, const scheduler::ScheduleProblem& problem) {
  const Offence offence = offence_of(orders, problem);
  std::string place;
  if (offence.rank >= 0) place = text("rank ", offence.rank);
  if (problem.missing) place += text(", before position ", offence.position, ": ", offence.action, " is missing: ");
  else if (offence.position >= 0) place += text(", position ", offence.position, ": ", offence.action, " ");
  else if (!place.empty()) place += ": ";
  const Diagnostic diagnostic{.code = Code::kCheckFailed,
                              .origin = ModelText(options.input),
                              .message = place + problem.what,
                              .hint = problem.hint};
  std::cerr << "graphpipe check: " << to_line(diagnostic) << "\n";
  if (options.json) {
    JsonObject object;
    object.add("valid", false).add("rank", offence.rank).add("position", offence.position);
    object.add("action", offence.action).add("missing", problem.missing.has_value()).add("problem", problem.what);
    print_json("check", object, {diagnostic});
  }
  return wire::kExitCheckFailed;
}

/// Delayed starts are valid only for the costs that they were computed with.
Result<StandaloneSchedule> without_delays(const scheduler::WholeSchedule& whole) {
  ir::Schedule schedule = whole.schedule;
  schedule.starts.clear();
  return simulate_standalone(whole.graph, whole.cluster, std::move(schedule));
}

/// Metrics at three fixed settings of the costs, for comparison with other schedules (docs/files.md).
Status add_columns(JsonObject& object, const scheduler::WholeSchedule& whole) {
  const auto metrics = [&](const scheduler::PassCosts& costs) -> Result<scheduler::ScheduleMetrics> {
    ir::StageGraph graph = whole.graph;
    scheduler::set_costs(graph, costs);
    ir::Schedule schedule = whole.schedule;
    schedule.starts.clear();
    GP_TRY(StandaloneSchedule standalone,
           simulate_standalone(
               std::move(graph),
               scheduler::standalone_cluster(static_cast<int>(whole.cluster.devices.size()), costs.latency),
               std::move(schedule)));
    return std::move(standalone.metrics);
  };
  GP_TRY(const scheduler::ScheduleMetrics equal, metrics({}));
  GP_TRY(const scheduler::ScheduleMetrics late, metrics({.latency = 0.5}));
  GP_TRY(const scheduler::ScheduleMetrics uneven,
         metrics({.forward = 2, .input_gradient = 3, .weight_gradient = 2, .latency = 0}));
  object.add("makespan_F1I1W1", equal.makespan).add("longest_rank_span_F1I1W1", equal.longest_rank_span);
  object.add("bubble_fraction_F1I1W1", equal.bubble_fraction);
  object.add("makespan_F1I1W1_comm0.5", late.makespan).add("makespan_F2I3W2", uneven.makespan);
  return Ok{};
}

size_t max_replicas(const ir::StageGraph& graph) {
  size_t largest = 1;
  for (const ir::Stage& stage : graph.stages) largest = std::max(largest, stage.choice.devices.size());
  return largest;
}

}  // namespace

int run_check(const Options& options) {
  const Result<scheduler::PassCosts> costs = pass_costs(options.schedule);
  if (!costs) return report_problems(options, "check", costs.problems());
  const Result<Orders> orders = read_orders(options.input);
  if (!orders) return report_problems(options, "check", orders.problems());
  if (const Status proven = check_has_versions(options.schedule, orders->schedule); !proven)
    return report_problems(options, "check", proven.problems());
  const scheduler::Verdict verdict =
      scheduler::complete_schedule(orders->schedule, orders->numbers, *costs, claims_of(options.schedule));
  if (verdict.problem) return report_offence(options, *orders, *verdict.problem);
  const scheduler::WholeSchedule& whole = *verdict.whole;
  Result<StandaloneSchedule> standalone = simulate_standalone(whole.graph, whole.cluster, whole.schedule);
  if (!standalone) return report_problems(options, "check", standalone.problems());
  if (!whole.schedule.starts.empty()) {
    Result<StandaloneSchedule> at_once = without_delays(whole);
    if (at_once && at_once->timeline.makespan < standalone->timeline.makespan) {
      report_notes(options, {{.code = Code::kUsage,
                              .severity = Severity::kNote,
                              .origin = ModelText(options.input),
                              .message = "its delayed starts are those of other costs, and are left out",
                              .hint = "check it at the costs that it was made for"}});
      standalone = std::move(at_once);
    }
  }
  if (!options.json) {
    const size_t replicas = max_replicas(whole.graph);
    std::cout << fmt::format("valid: {} ranks, {} stages, {} micro-batches, {}\n", whole.schedule.programs.size(),
                             whole.graph.stages.size(), ir::max_micro_batches(whole.graph),
                             replicas > 1 ? text("up to ", replicas, " replicas of a stage") : "no replicas")
              << standalone_text(*standalone);
    return 0;
  }
  JsonObject object;
  object.add("valid", true).add("ranks", whole.schedule.programs.size()).add("stages", whole.graph.stages.size());
  object.add("microbatches", ir::max_micro_batches(whole.graph)).add("replicas", max_replicas(whole.graph));
  add_metrics(object, *standalone);
  if (const Status added = add_columns(object, whole); !added)
    return report_problems(options, "check", added.problems());
  add_standalone_timeline(object, *standalone);
  print_json("check", object, {});
  return 0;
}

}  // namespace graphpipe::driver
