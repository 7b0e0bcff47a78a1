// Whether orders of compute actions alone can run: a walk without time in which every result is there as soon as its
// action has run. An overlapped pair runs at once.

#include <algorithm>
#include <map>

#include "scheduler/validate/check_tables.h"

namespace graphpipe::scheduler::check {
namespace {

/// A set of samples, as ranges of which none touches another.
class SampleSet {
 public:
  bool contains(SampleRange range) const {
    const auto next = ranges_.upper_bound(range.first);
    return next != ranges_.begin() && std::prev(next)->second >= range.last;
  }
  void insert(SampleRange range) {
    auto next = ranges_.upper_bound(range.first);
    if (next != ranges_.begin() && std::prev(next)->second >= range.first) range.first = (--next)->first;
    while (next != ranges_.end() && next->first <= range.last) {
      range.last = std::max(range.last, next->second);
      next = ranges_.erase(next);
    }
    ranges_[range.first] = range.last;
  }

 private:
  std::map<int64_t, int64_t> ranges_;  // by first sample the end
};

class ComputeWalk {
 public:
  explicit ComputeWalk(const StageGraph& graph) : stages_(graph.stages.size()) {
    for (const ir::StageEdge& edge : graph.edges) {
      stages_[edge.to].reads_values_of.push_back(edge.from);
      if (edge.carries_gradient()) stages_[edge.from].reads_gradients_of.push_back(edge.to);
    }
  }

  /// Whether the stages that it reads from have run its samples.
  bool is_ready(const Action& action) const {
    const Stage& stage = stages_[StageId(static_cast<size_t>(action.stage))];
    if (action.op == ActionOp::kForward)
      return std::ranges::all_of(stage.reads_values_of,
                                 [&](StageId above) { return stages_[above].ran_forward.contains(action.range); });
    return !makes_gradients(action) || std::ranges::all_of(stage.reads_gradients_of, [&](StageId below) {
      return stages_[below].ran_backward.contains(action.range);
    });
  }

  void run(const Action& action) {
    Stage& stage = stages_[StageId(static_cast<size_t>(action.stage))];
    if (action.op == ActionOp::kForward) stage.ran_forward.insert(action.range);
    if (makes_gradients(action)) stage.ran_backward.insert(action.range);
  }

 private:
  struct Stage {
    std::vector<StageId> reads_values_of, reads_gradients_of;
    /// On any replica.
    SampleSet ran_forward, ran_backward;
  };

  static bool makes_gradients(const Action& action) {
    return action.op == ActionOp::kBackward || action.op == ActionOp::kInputGradient;
  }

  IdMap<StageId, Stage> stages_;
};

}  // namespace

Diagnostics check_compute_progress(const Tables& tables) {
  const Schedule& schedule = tables.schedule;
  ComputeWalk walk(tables.graph);
  std::vector<size_t> next(schedule.programs.size(), 0);
  const auto run_next = [&](size_t p) {
    const std::vector<Action>& actions = schedule.programs[p].actions;
    if (next[p] == actions.size()) return false;
    const size_t count = actions[next[p]].overlaps_next ? 2 : 1;
    for (size_t i = next[p]; i < next[p] + count; ++i)
      if (!walk.is_ready(actions[i])) return false;
    for (const size_t end = next[p] + count; next[p] < end; ++next[p]) walk.run(actions[next[p]]);
    return true;
  };
  for (bool progress = true; progress;) {
    progress = false;
    for (size_t p = 0; p < next.size(); ++p)
      while (run_next(p)) progress = true;
  }
  for (size_t p = 0; p < next.size(); ++p)
    if (next[p] < schedule.programs[p].actions.size())
      return {tables.problem(static_cast<int>(p), static_cast<int>(next[p]),
                             "waits forever: what it needs is computed only after it",
                             "run what it waits for earlier, or more forwards before the first backward")};
  return {};
}

}  // namespace graphpipe::scheduler::check
