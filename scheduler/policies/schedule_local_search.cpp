#include "scheduler/policies/schedule_local_search.h"

#include <algorithm>
#include <map>

#include "scheduler/lowering/insert_transfers.h"
#include "scheduler/lowering/updates.h"
#include "scheduler/memory/memory.h"
#include "scheduler/simulate/relaxed_times.h"
#include "scheduler/simulate/simulate.h"
#include "scheduler/validate/check_schedule.h"

namespace graphpipe::scheduler {
namespace {

struct Evaluation {
  OrderScore score;
  Schedule schedule;
  Timeline timeline;
};

/// Scores the order. Nothing if it cannot run, or if it is not better than `best` even with memory left out.
std::optional<Evaluation> evaluate(const StageGraph& graph, const ir::Cluster& cluster, const Schedule& compute,
                                   const LoweringOptions& lowering, const OrderScore* best = nullptr) {
  Result<Schedule> lowered = insert_transfers(graph, compute, lowering);
  if (!lowered.ok()) return std::nullopt;
  Evaluation result{.score = {}, .schedule = *std::move(lowered), .timeline = {}};
  Result<Timeline> timeline =
      simulate(graph, cluster, result.schedule, {.ticks_per_second = fine_ticks_per_second(graph)});
  if (!timeline.ok()) return std::nullopt;
  result.timeline = *std::move(timeline);
  result.score.makespan = result.timeline.makespan;
  for (const auto& spans : result.timeline.spans)
    for (const Span span : spans) result.score.ends += span.end;
  if (best != nullptr && !(result.score < *best)) return std::nullopt;
  const MemoryOptions options{.optimizer_state_per_weight_byte = graph.optimizer_state_per_weight_byte};
  const std::vector<DeviceMemory> memory = memory_of(graph, result.schedule, options);
  for (size_t p = 0; p < memory.size(); ++p)
    result.score.excess +=
        std::max(Bytes(0), memory[p].peak - cluster.devices[result.schedule.programs[p].device].memory);
  return result;
}

bool same_item(const Action& a, const Action& b) {
  return a.stage == b.stage && a.replica == b.replica && a.range == b.range;
}

/// What lowering and simulating an action costs, in relaxed times of one.
constexpr int64_t kRelaxedPerSimulation = 32;

/// Time in which a device waits before an action of its compute list.
struct Gap {
  size_t program = 0, position = 0;
  Ticks length;
};

/// Longest first; of equal ones the earlier device and action. `updates`: the lists hold updates, which wait for
/// nobody.
std::vector<Gap> gaps_of(const Evaluation& evaluation, bool updates) {
  std::vector<Gap> gaps;
  for (size_t p = 0; p < evaluation.schedule.programs.size(); ++p) {
    Ticks end;
    size_t position = 0;
    const std::vector<Action>& actions = evaluation.schedule.programs[p].actions;
    for (size_t i = 0; i < actions.size(); ++i) {
      if (updates && ir::is_update(actions[i].op)) {
        ++position;
        continue;
      }
      // Recompute is added by the lowering and has no place in the compute list.
      if (!ir::is_compute(actions[i].op) || actions[i].op == ActionOp::kRecompute) continue;
      const Span span = evaluation.timeline.spans[p][i];
      if (span.start > end) gaps.push_back({p, position, span.start - end});
      end = span.end;
      ++position;
    }
  }
  std::stable_sort(gaps.begin(), gaps.end(), [](const Gap& a, const Gap& b) { return a.length > b.length; });
  return gaps;
}

class Search {
 public:
  Search(const StageGraph& graph, const ir::Cluster& cluster, Schedule compute, const SearchOptions& options)
      : graph_(graph),
        cluster_(cluster),
        options_(options),
        compute_(std::move(compute)),
        updates_(has_updates(compute_)) {}

  Schedule run() {
    std::optional<Evaluation> start = evaluate(graph_, cluster_, compute_, options_.lowering);
    if (!start) return std::move(compute_);
    best_ = *std::move(start);
    if (!updates_) {
      relaxed_.emplace(graph_, cluster_, compute_, fine_ticks_per_second(graph_));
      relaxed_best_ = relaxed_->score();
    }
    while (fill_one_gap()) {
    }
    return std::move(compute_);
  }

 private:
  bool fill_one_gap() {
    for (const Gap& gap : gaps_of(best_, updates_)) {
      const size_t count = compute_.programs[gap.program].actions.size();
      if (gap.position >= count) continue;
      const size_t last = std::min(count, gap.position + options_.window + 1);
      for (size_t from = gap.position + 1; from < last; ++from)
        if (keep_if_better(gap.program, from, gap.position)) return true;
      // Or the waiting action is moved up, before actions that may run in the gap instead.
      const size_t first = gap.position > options_.window ? gap.position - options_.window : 0;
      for (size_t to = gap.position; to-- > first;)
        if (keep_if_better(gap.program, gap.position, to)) return true;
      if (simulated_ >= options_.max_actions) return false;
    }
    return false;
  }

  /// Moves one action of a list to an earlier position.
  bool keep_if_better(size_t program, size_t from, size_t to) {
    std::vector<Action>& actions = compute_.programs[program].actions;
    const auto begin = actions.begin() + static_cast<ptrdiff_t>(to),
               end = actions.begin() + static_cast<ptrdiff_t>(from);
    // An action stays behind the earlier ones of its item; pairs stay together.
    if (!ir::is_compute(end->op) || end->overlaps_next || (end - 1)->overlaps_next) return false;
    if (to > 0 && (begin - 1)->overlaps_next) return false;
    if (std::any_of(begin, end, [&](const Action& action) { return same_item(action, *end); })) return false;
    if (simulated_ >= options_.max_actions) return false;
    if (relaxed_) relaxed_->rotate(program, to, from, from + 1);
    if (may_be_better()) {
      std::rotate(begin, end, end + 1);
      std::optional<Evaluation> moved = evaluate(graph_, cluster_, compute_, options_.lowering, &best_.score);
      for (const ir::Program& each : compute_.programs) simulated_ += static_cast<int64_t>(each.actions.size());
      if (moved && moved->score < best_.score && keeps_versions(*moved)) {
        best_ = *std::move(moved);
        relaxed_best_ = relaxed_moved_;
        return true;
      }
      std::rotate(begin, begin + 1, end + 1);
    }
    if (relaxed_) relaxed_->rotate(program, to, to + 1, from + 1);
    return false;
  }

  /// Whether the order with the move is worth a simulation: it may take less memory, or is earlier where no message
  /// waits for a link.
  bool may_be_better() {
    if (!relaxed_ || !relaxed_best_) return true;
    simulated_ += 1 + static_cast<int64_t>(relaxed_->size()) / kRelaxedPerSimulation;
    relaxed_moved_ = relaxed_->score();
    return relaxed_moved_ && (best_.score.excess > Bytes(0) || *relaxed_moved_ < *relaxed_best_);
  }

  /// An action that has moved over actions of updates must still find its weight version.
  bool keeps_versions(const Evaluation& moved) const {
    return !updates_ ||
           check_schedule(graph_, cluster_, moved.schedule, {.memory = {}, .check_memory = false, .claims = {}}).ok();
  }

  const StageGraph& graph_;
  const ir::Cluster& cluster_;
  const SearchOptions& options_;
  Schedule compute_;
  const bool updates_;
  Evaluation best_;
  /// Of orders without updates, and what it says of the best one and of the one that is tried.
  std::optional<RelaxedTimes> relaxed_;
  std::optional<RelaxedTimes::Score> relaxed_best_, relaxed_moved_;
  int64_t simulated_ = 0;
};

}  // namespace

std::optional<OrderScore> score_order(const StageGraph& graph, const ir::Cluster& cluster, const Schedule& compute,
                                      const LoweringOptions& lowering) {
  const std::optional<Evaluation> evaluation = evaluate(graph, cluster, compute, lowering);
  return evaluation ? std::optional(evaluation->score) : std::nullopt;
}

Schedule improve_order(const StageGraph& graph, const ir::Cluster& cluster, Schedule compute,
                       const SearchOptions& options) {
  return Search(graph, cluster, std::move(compute), options).run();
}

}  // namespace graphpipe::scheduler
