#include "scheduler/validate/check_schedule.h"

#include <algorithm>

#include "scheduler/validate/check_tables.h"
#include "scheduler/validate/peak_memory.h"

namespace graphpipe::scheduler {
namespace check {
namespace {

Diagnostic bad_schedule(std::string message, std::string hint) {
  return Diagnostic{.code = Code::kBadSchedule, .message = std::move(message), .hint = std::move(hint)};
}

}  // namespace

Diagnostics check_actions(const Tables& tables, const ir::Cluster& cluster) {
  const Schedule& schedule = tables.schedule;
  Diagnostics problems;
  IdSet<ir::DeviceId> used;
  size_t rows = 0;
  for (const ir::Program& program : schedule.programs) {
    rows += program.actions.size();
    if (!program.device.valid() || program.device.index() >= cluster.devices.size())
      return {bad_schedule(text("device ", program.device, " is not in the cluster"), "use the plan's cluster")};
    if (!used.insert(program.device))
      return {bad_schedule(text("device ", program.device, " has two programs"), "merge them into one list")};
  }
  if (schedule.slots.size() > tables.graph.stages.size())
    return {bad_schedule(text("slots of ", schedule.slots.size(), " stages, the plan has ", tables.graph.stages.size()),
                         "give one count per stage")};
  if (!has_right_starts(schedule))
    return {bad_schedule("starts that are not one per program, from 0 to 2^53 ticks", "leave them out, or give all")};
  for (const int slots : schedule.slots)
    if (slots < 0 || static_cast<size_t>(slots) > std::max<size_t>(rows, 1))
      return {
          bad_schedule(text("a ring of ", slots, " slots for ", rows, " actions"), "use one slot per item in flight")};
  for_each_action(tables, [&](Place place, const Action& action) {
    const ir::DeviceId device = schedule.programs[static_cast<size_t>(place.program)].device;
    std::string_view what = action_problem(tables.graph, schedule, device, action);
    if (what.empty())
      what =
          overlap_problem(schedule.programs[static_cast<size_t>(place.program)], static_cast<size_t>(place.position));
    if (!what.empty() && problems.size() < kMaxProblems)
      problems.push_back(tables.problem(place, what, "correct the action, or lower the compute order again"));
  });
  return problems;
}

/// What takes less memory and is not used up in this plan.
std::string memory_hint(const StageGraph& graph) {
  // A stage that works on the whole batch has no smaller ones.
  const bool has_samples_to_divide = std::ranges::any_of(graph.stages, [](const ir::Stage& stage) {
    return stage.scope != ir::SampleScope::kBatch && stage.choice.micro_batch > Samples(1);
  });
  const bool keeps_activations = std::ranges::any_of(
      graph.stages, [](const ir::Stage& stage) { return stage.has_backward && !stage.choice.recompute; });
  std::string hint = "use ";
  if (has_samples_to_divide) hint += "smaller micro-batches, ";
  if (keeps_activations) hint += "recomputation, ";
  return hint + "fewer samples in flight, or more devices";
}

Diagnostics check_memory(const Tables& tables, const ir::Cluster& cluster, const MemoryOptions& options) {
  Diagnostics problems;
  const std::vector<PeakMemory> peaks = peak_memory(tables, options);
  for (size_t p = 0; p < peaks.size(); ++p) {
    const ir::Program& program = tables.schedule.programs[p];
    const Bytes needs = peaks[p].bytes, has = cluster.devices[program.device].memory;
    if (needs <= has) continue;
    const std::string where =
        program.actions.empty() ? text("device ", program.device) : place_text(tables.schedule, p, peaks[p].position);
    problems.push_back(Diagnostic{.code = Code::kNoFeasiblePlan,
                                  .message = text(where, " needs ", needs.count, " bytes, the device has ", has.count,
                                                  ": ", (needs - has).count, " too many"),
                                  .hint = memory_hint(tables.graph)});
  }
  return problems;
}

}  // namespace check

namespace {

Diagnostics run_checks(check::Tables& tables, const ir::Cluster& cluster, const CheckOptions& options) {
  if (Diagnostics problems = check::check_actions(tables, cluster); !problems.empty()) return problems;
  if (Diagnostics problems = check::check_items(tables); !problems.empty()) return problems;
  if (Diagnostics problems = check::check_messages(tables); !problems.empty()) return problems;
  if (Diagnostics problems = check::check_slots(tables); !problems.empty()) return problems;
  if (Diagnostics problems = check::check_versions(tables); !problems.empty()) return problems;
  if (Diagnostics problems = check::check_claims(tables, options.claims); !problems.empty()) return problems;
  if (options.synchronous)
    if (Diagnostics problems = check::check_step(tables); !problems.empty()) return problems;
  if (Diagnostics problems = check::check_progress(tables); !problems.empty()) return problems;
  return options.check_memory ? check::check_memory(tables, cluster, options.memory) : Diagnostics();
}

std::optional<ScheduleProblem> first_of(const check::Tables& tables, const Diagnostics& problems) {
  if (problems.empty()) return std::nullopt;
  if (tables.first) return tables.first;
  return ScheduleProblem{-1, -1, problems.front().message, problems.front().hint, {}};
}

}  // namespace

Status check_schedule(const StageGraph& graph, const ir::Cluster& cluster, const Schedule& schedule,
                      const CheckOptions& options) {
  check::Tables tables{graph, schedule, {}, {}, {}, {}};
  if (Diagnostics problems = run_checks(tables, cluster, options); !problems.empty()) return problems;
  return Ok{};
}

std::optional<ScheduleProblem> first_problem(const StageGraph& graph, const ir::Cluster& cluster,
                                             const Schedule& schedule, const CheckOptions& options) {
  check::Tables tables{graph, schedule, {}, {}, {}, {}};
  return first_of(tables, run_checks(tables, cluster, options));
}

std::optional<ScheduleProblem> first_compute_problem(const StageGraph& graph, const ir::Cluster& cluster,
                                                     const Schedule& compute) {
  check::Tables tables{graph, compute, {}, {}, {}, {}};
  if (auto problem = first_of(tables, check::check_actions(tables, cluster))) return problem;
  if (auto problem = first_of(tables, check::check_items(tables))) return problem;
  return first_of(tables, check::check_compute_progress(tables));
}

}  // namespace graphpipe::scheduler
