#include "scheduler/analysis/start_slack.h"

#include <algorithm>
#include <tuple>

#include "scheduler/lowering/items.h"

namespace graphpipe::scheduler {
namespace {

/// A compute action, and the others that wait for it.
struct Task {
  size_t program = 0;
  Span span;
  Ticks latest;       // start
  int64_t next = -1;  // the next task of its program
  struct Reader {
    size_t task = 0;
    Ticks delay;  // from this task's end to the arrival
  };
  std::vector<Reader> readers;
};

class Slack {
 public:
  Slack(const StageGraph& graph, const Schedule& schedule, const Timeline& timeline)
      : schedule_(schedule), timeline_(timeline), items_(graph, schedule) {
    forward_.assign(items_.size(), -1);
    backward_.assign(items_.size(), -1);
    first_.assign(schedule.programs.size(), -1);
  }

  std::vector<Ticks> run() {
    add_tasks();
    add_messages();
    std::vector<size_t> order(tasks_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    // A task that waits for another starts at its end or later; where both start at once, the other takes no time.
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return std::tuple(tasks_[a].span.start, tasks_[a].span.end, a) >
             std::tuple(tasks_[b].span.start, tasks_[b].span.end, b);
    });
    for (const size_t index : order) delay(tasks_[index]);
    std::vector<Ticks> starts;
    for (const int64_t first : first_)
      starts.push_back(first < 0 ? Ticks(0) : tasks_[static_cast<size_t>(first)].latest);
    return starts;
  }

 private:
  ItemIndex item_of(const Action& action) const { return items_.item_of(action); }
  /// The task that makes or needs a message.
  int64_t task_of(const Action& message) const {
    const auto item = static_cast<size_t>(item_of(message));
    return ir::is_backward_message(message.op) ? backward_[item] : forward_[item];
  }

  void add_tasks() {
    for (size_t p = 0; p < schedule_.programs.size(); ++p) {
      const std::vector<Action>& actions = schedule_.programs[p].actions;
      for (size_t i = 0; i < actions.size(); ++i) {
        if (!ir::is_compute(actions[i].op)) continue;
        const auto index = static_cast<int64_t>(tasks_.size());
        const auto item = static_cast<size_t>(item_of(actions[i]));
        if (actions[i].op == ActionOp::kForward) forward_[item] = index;
        if (ir::makes_input_gradient(actions[i].op)) backward_[item] = index;
        if (first_[p] < 0) first_[p] = index;
        else tasks_.back().next = index;
        const Span span = timeline_.spans[p][i];
        tasks_.push_back({.program = p, .span = span, .latest = span.start, .readers = {}});
      }
    }
  }

  void add_messages() {
    for (size_t p = 0; p < schedule_.programs.size(); ++p) {
      const std::vector<Action>& actions = schedule_.programs[p].actions;
      for (size_t i = 0; i < actions.size(); ++i) {
        if (!ir::is_receive(actions[i].op)) continue;
        const ActionPlace sent = timeline_.causes[p][i];
        const auto from = static_cast<size_t>(sent.program), at = static_cast<size_t>(sent.position);
        Task& maker = tasks_[static_cast<size_t>(task_of(schedule_.programs[from].actions[at]))];
        maker.readers.push_back(
            {static_cast<size_t>(task_of(actions[i])), timeline_.spans[from][at].end - maker.span.end});
      }
    }
  }

  void delay(Task& task) const {
    Ticks end = task.next < 0 ? task.span.end : tasks_[static_cast<size_t>(task.next)].latest;
    for (const Task::Reader& reader : task.readers) end = std::min(end, tasks_[reader.task].latest - reader.delay);
    task.latest = std::max(task.span.start, end - (task.span.end - task.span.start));
  }

  const Schedule& schedule_;
  const Timeline& timeline_;
  ItemTable items_;
  std::vector<Task> tasks_;
  /// Per item its F, and its B or I.
  std::vector<int64_t> forward_, backward_;
  /// Per program its first task.
  std::vector<int64_t> first_;
};

}  // namespace

std::vector<Ticks> latest_starts(const StageGraph& graph, const Schedule& schedule, const Timeline& timeline) {
  return Slack(graph, schedule, timeline).run();
}

Status delay_starts(const StageGraph& graph, const ir::Cluster& cluster, const SimulateOptions& options,
                    Schedule& schedule, Timeline& timeline) {
  if (longest_delayed_span(graph, schedule, timeline) >= metrics_of(schedule, timeline).longest_span) return Ok{};
  Schedule delayed = schedule;
  delayed.starts = latest_starts(graph, schedule, timeline);
  GP_TRY(Timeline later, simulate(graph, cluster, delayed, options));
  if (later.makespan > timeline.makespan) return Ok{};
  schedule = std::move(delayed);
  timeline = std::move(later);
  return Ok{};
}

Ticks longest_delayed_span(const StageGraph& graph, const Schedule& schedule, const Timeline& timeline) {
  const std::vector<Ticks> starts = latest_starts(graph, schedule, timeline);
  const TimelineMetrics metrics = metrics_of(schedule, timeline);
  Ticks longest;
  for (size_t p = 0; p < starts.size(); ++p) longest = std::max(longest, metrics.devices[p].last_end - starts[p]);
  return longest;
}

}  // namespace graphpipe::scheduler
