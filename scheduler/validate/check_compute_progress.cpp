// Whether orders of compute actions alone can run: a walk without time in which every result is there as soon as its
// action has run. An overlapped pair runs at once.

#include "scheduler/validate/check_tables.h"

namespace graphpipe::scheduler::check {

Diagnostics check_compute_progress(const Tables& tables) {
  const Schedule& schedule = tables.schedule;
  const ItemTable items(tables.graph, schedule);
  DataFlow flow(tables.graph, items);
  const auto item_of = [&](const Action& action) {
    return items.containing(StageId(static_cast<size_t>(action.stage)), action.replica, action.range);
  };
  std::vector<size_t> next(schedule.programs.size(), 0);
  const auto run_next = [&](size_t p) {
    const std::vector<Action>& actions = schedule.programs[p].actions;
    if (next[p] == actions.size()) return false;
    const size_t count = actions[next[p]].overlaps_next ? 2 : 1;
    for (size_t i = next[p]; i < next[p] + count; ++i)
      if (!flow.is_ready(item_of(actions[i]), actions[i].op)) return false;
    for (const size_t end = next[p] + count; next[p] < end; ++next[p])
      flow.finish(item_of(actions[next[p]]), actions[next[p]].op);
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
