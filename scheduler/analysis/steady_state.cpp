#include "scheduler/analysis/steady_state.h"

#include <algorithm>
#include <map>
#include <utility>

namespace graphpipe::scheduler {
namespace {

/// Updates per stage after which the warm-up is over.
constexpr int64_t kUpdatesPerStage = 4;
/// Schedules with more actions take seconds to order and to simulate.
constexpr int64_t kMaxActions = 100'000;

struct Updates {
  int64_t count = 0;
  int64_t samples = 0;  // of one: the last of a batch may have fewer
};

/// Updates of the whole schedule: those of the replica that makes the most.
Updates updates_of(const Schedule& schedule) {
  std::map<std::pair<int32_t, int32_t>, Updates> steps;
  Updates max_updates;
  for (const ir::Program& program : schedule.programs)
    for (const Action& action : program.actions) {
      if (action.op != ActionOp::kStep) continue;
      Updates& updates = steps[{action.stage, action.replica}];
      updates.samples = std::max(updates.samples, action.range.size());
      if (++updates.count > max_updates.count) max_updates = updates;
    }
  return max_updates;
}

int64_t actions_of(const Schedule& schedule) {
  int64_t count = 0;
  for (const ir::Program& program : schedule.programs) count += std::ssize(program.actions);
  return count;
}

/// The options that build this schedule, found by trial: plan files do not say how the order was asked for.
std::optional<BuildOptions> options_of(const StageGraph& graph, const ir::Cluster& cluster, const BuildOptions& options,
                                       const Schedule& schedule) {
  const Samples update(updates_of(schedule).samples);
  for (const Samples samples : {options.choices.update, update})
    for (const bool vertical_sync : {options.choices.vertical_sync, !options.choices.vertical_sync}) {
      BuildOptions tried = options;
      tried.choices.update = samples;
      tried.choices.vertical_sync = vertical_sync;
      const auto built = build_schedule(graph, cluster, tried);
      if (built && built->schedule == schedule) return tried;
    }
  return std::nullopt;
}

std::optional<double> seconds_of(StageGraph graph, const ir::Cluster& cluster, const BuildOptions& options,
                                 int64_t batches) {
  const int64_t batch = graph.batch.count / graph.batches;
  graph.batch = Samples(batch * batches);
  if (graph.batches > 1) graph.batches = batches;  // its updates lie within batches
  const auto built = build_schedule(graph, cluster, options);
  // No step has an update of more samples than its batch, however many batches follow each other.
  if (!built || updates_of(built->schedule).samples > batch) return std::nullopt;
  return built->seconds();
}

}  // namespace

std::optional<SteadyState> steady_state(const StageGraph& graph, const ir::Cluster& cluster,
                                        const BuildOptions& options, const Schedule& schedule) {
  // Even a batch of one update is asynchronous where another batch follows.
  const Policy* policy = find_policy(options.policy);
  const Updates all = updates_of(schedule);
  const int64_t updates = all.count / graph.batches;
  if (policy == nullptr || !policy->asynchronous || updates == 0) return std::nullopt;
  const int64_t before = (kUpdatesPerStage * std::ssize(graph.stages) + updates - 1) / updates;
  if ((before + 1) * actions_of(schedule) / graph.batches > kMaxActions) return std::nullopt;
  const std::optional<BuildOptions> own = options_of(graph, cluster, options, schedule);
  if (!own) return std::nullopt;
  const std::optional<double> some = seconds_of(graph, cluster, *own, before);
  const std::optional<double> more = seconds_of(graph, cluster, *own, before + 1);
  if (!some || !more) return std::nullopt;
  const double step = *more - *some;
  // In a stream of batches an update may have samples of two, which one batch has no room for.
  const int64_t samples = graph.batches > 1 ? all.samples : std::max(all.samples, own->choices.update.count);
  const auto batch = static_cast<double>(graph.batch.count) / static_cast<double>(graph.batches);
  return SteadyState{.step_seconds = step, .update_seconds = step * static_cast<double>(samples) / batch};
}

}  // namespace graphpipe::scheduler
