#pragma once
// The simulator's state and steps; internal to simulate*.cpp. One event is one program that may go on at a time; events
// come in ascending time, ties to the lower program, so that links are asked for in the order of time.

#include <algorithm>
#include <optional>
#include <queue>

#include "scheduler/simulate/resolve.h"
#include "scheduler/simulate/simulate.h"

namespace graphpipe::scheduler {

inline constexpr Ticks kUnknown{-1};

enum class ItemState : uint8_t { kNew, kForwardDone, kInputGradientDone, kDone };

/// What happens to one item while the programs run.
struct ItemRun {
  ItemState state = ItemState::kNew;
  int32_t slot = -1;
  int64_t missing_forward = 0, missing_backward = 0;
  /// Actions of the item that are still to come: the slot is free after the last one.
  int32_t actions_left = 0;
  Ticks forward_ready, backward_ready;
  ActionIndex forward_cause = -1, backward_cause = -1;
};

struct ProgramRun {
  ActionIndex next = 0, end = 0;
  /// When the device is free for its next action.
  Ticks now;
  ActionIndex last_compute = -1;
  /// The item whose messages it waits for, or -1.
  ItemIndex waits_for = -1;
  bool waits_backward = false;
  /// While an overlapped pair starts: when the gradient of its backward is there, and what brought it.
  Ticks pair_ready;
  ActionIndex pair_cause = -1;
  /// Stands at a step or a norm until a collective has its result.
  bool waits_collective = false;
  /// The collectives that it has contributed gradients to.
  std::vector<size_t> reduced;
  bool finished = false;
};

struct Collective {
  int32_t members = 0, arrived = 0;
  Ticks latest, length, result = kUnknown;
  ActionIndex cause = -1;
  std::vector<ActionIndex> contributions;
  /// Its reduction group, or -1: the norm.
  int group = -1;
};

class Simulator {
 public:
  Simulator(const StageGraph& graph, const ir::Cluster& cluster, const Schedule& schedule,
            const SimulateOptions& options, const ResolvedSchedule& resolved)
      : graph_(graph), cluster_(cluster), schedule_(schedule), options_(options), resolved_(resolved) {}

  Result<Timeline> run() {
    GP_TRY_VOID(run_programs());
    return take_timeline();
  }
  /// The last end of an action.
  Result<Ticks> run_for_makespan() {
    GP_TRY_VOID(run_programs());
    Ticks makespan;
    for (const Span& span : spans_) makespan = std::max(makespan, span.end);
    return makespan;
  }

 private:
  Status run_programs() {
    prepare();
    while (!queue_.empty() && !problem_) {
      const Event event = queue_.top();
      queue_.pop();
      programs_[event.program].now = event.time;
      advance(event.program);
    }
    if (problem_) return *problem_;
    for (size_t p = 0; p < programs_.size(); ++p)
      if (!programs_[p].finished) return stuck(p);
    return Ok{};
  }

  struct Event {
    Ticks time;
    size_t program = 0;
    bool operator>(const Event& other) const {
      return time != other.time ? time > other.time : program > other.program;
    }
  };
  /// What an action did: the program goes on at once, continues at a later event, or waits for somebody else.
  enum class Outcome : uint8_t { kNext, kLater, kWait };

  void prepare();
  void prepare_collectives();
  void advance(size_t program);
  Outcome step(size_t program, ActionIndex at, const Action& action);
  Outcome run_send(size_t program, ActionIndex at, const Action& action);
  Outcome run_receive(size_t program, ActionIndex at, const Action& action);
  Outcome run_item_action(size_t program, ActionIndex at);
  Outcome run_compute(size_t program, ActionIndex at, const Action& action);
  void find_reduction_links();
  Ticks occupy_links(const Collective& collective);
  void find_early_ends();
  bool ends_too_early(ActionIndex at);
  Outcome run_norm(size_t program, ActionIndex at);
  Outcome contribute(size_t program, ActionIndex at, Collective& collective);
  Outcome run_step(size_t program, ActionIndex at, const Action& action);
  Outcome wait_for(size_t program, ItemIndex index, bool backward);
  void start_compute(size_t program, ActionIndex at, const ItemRun& item, bool forward);
  bool meet(size_t program, ActionIndex at);
  Outcome keep_busy(size_t program, ActionIndex at);
  void transfer(ActionIndex send, Ticks from, ActionIndex cause);
  void deliver(ActionIndex send);
  bool enter_slot(ActionIndex at, ItemRun& item);
  void leave_slot(ActionIndex at);
  bool is_available(const Action& action, const ItemRun& item) const;
  std::string_view order_problem(const Action& action, const ItemRun& item) const;
  Outcome fail(ActionIndex at, std::string_view what);
  Diagnostic stuck(size_t program) const;
  Timeline take_timeline() const;

  size_t program_of(ActionIndex at) const {
    return static_cast<size_t>(resolved_.program_of_action[static_cast<size_t>(at)]);
  }
  const Action& action_of(ActionIndex at) const {
    const size_t p = program_of(at);
    return schedule_.programs[p].actions[static_cast<size_t>(at - resolved_.first_action[p])];
  }
  const ResolvedAction& resolved(ActionIndex at) const { return resolved_.actions[static_cast<size_t>(at)]; }
  Span& span(ActionIndex at) { return spans_[static_cast<size_t>(at)]; }
  ItemRun& item(ItemIndex index) { return items_[static_cast<size_t>(index)]; }

  const StageGraph& graph_;
  const ir::Cluster& cluster_;
  const Schedule& schedule_;
  const SimulateOptions& options_;
  const ResolvedSchedule& resolved_;
  std::vector<Span> spans_;
  std::vector<ActionIndex> causes_;
  /// Sends and receives that have been reached; rendezvous partners look here.
  std::vector<uint8_t> reached_;
  std::vector<ItemRun> items_;
  std::vector<ProgramRun> programs_;
  /// Per slot of the plan the item in it, or -1.
  std::vector<ItemIndex> occupant_;
  struct Link {
    Ticks free;
    ActionIndex last = -1;
  };
  std::vector<Link> links_;
  /// The norm, then one per reduction group and update.
  std::vector<Collective> collectives_;
  /// Per reduction group the links that its sums go over, and per link when the reductions that have begun leave it.
  std::vector<std::vector<int32_t>> reduction_links_;
  std::vector<Ticks> reduction_link_free_;
  /// Per action of a reduction, or of a step that waits for one: its collective; else -1.
  std::vector<int32_t> collective_of_action_;
  std::vector<uint8_t> ends_early_;
  IdMap<StageId, int> group_of_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> queue_;
  std::optional<Diagnostic> problem_;
};

}  // namespace graphpipe::scheduler
