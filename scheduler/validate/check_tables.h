#pragma once
// What the checks of check_schedule.cpp hand to each other. Internal to the validator.

#include <optional>

#include "scheduler/action_problem.h"
#include "scheduler/validate/check_schedule.h"

namespace graphpipe::scheduler::check {

struct Place {
  int program = -1;
  int position = -1;
  bool valid() const { return program >= 0; }
};

/// One item and where its actions stand in its program; -1 where it has none.
struct CheckedItem {
  StageId stage;
  int replica = 0;
  SampleRange range;
  int program = -1;
  int forward = -1;
  int recompute = -1;
  /// B, or I of a split backward.
  int backward = -1;
  /// W, or B again.
  int weight_gradient = -1;
};

struct Tables {
  const StageGraph& graph;
  const Schedule& schedule;
  /// Ascending by (stage, replica, first sample).
  std::vector<CheckedItem> items;
  /// Per program, per action: index into items, or -1.
  std::vector<std::vector<int>> item_of;
  /// Per program, per action: the other end of a message.
  std::vector<std::vector<Place>> partner;

  const Action& action(Place place) const {
    return schedule.programs[static_cast<size_t>(place.program)].actions[static_cast<size_t>(place.position)];
  }
  /// The first problem that problem() has made, with its place.
  mutable std::optional<ScheduleProblem> first;

  Diagnostic problem(int program, int position, std::string_view what, std::string hint) const {
    if (!first) first = {program, position, std::string(what), hint};
    return schedule_problem(schedule, static_cast<size_t>(program), static_cast<size_t>(position), what,
                            std::move(hint));
  }
  Diagnostic problem(Place place, std::string_view what, std::string hint) const {
    return problem(place.program, place.position, what, std::move(hint));
  }
  /// `expected` is where the missing action should stand.
  Diagnostic missing(Place expected, const Action& action, std::string_view what, std::string hint) const {
    if (!first) first = {expected.program, expected.position, std::string(what), hint, action};
    return Diagnostic{
        .code = Code::kBadSchedule,
        .message = text("device ", schedule.programs[static_cast<size_t>(expected.program)].device,
                        ", before position ", expected.position, ": ", ir::print_action(action), " is missing: ", what),
        .hint = std::move(hint)};
  }
};

/// Calls f(place, action) for every action, program by program.
template <typename F>
void for_each_action(const Tables& tables, F&& f) {
  for (size_t p = 0; p < tables.schedule.programs.size(); ++p)
    for (size_t i = 0; i < tables.schedule.programs[p].actions.size(); ++i)
      f(Place{static_cast<int>(p), static_cast<int>(i)}, tables.schedule.programs[p].actions[i]);
}

/// Of every trained stage the lowest of the stages that it reduces with: those that share its weights, directly or
/// through others. -1 where it has nothing to reduce, neither replicas nor shared weights.
IdMap<StageId, int> stages_reduced_together(const StageGraph& graph);

/// Each fills its part of the tables and returns the problems it found; later ones need the earlier ones to be clean.
Diagnostics check_actions(const Tables& tables, const ir::Cluster& cluster);
Diagnostics check_items(Tables& tables);
Diagnostics check_messages(Tables& tables);
Diagnostics check_slots(const Tables& tables);
Diagnostics check_versions(const Tables& tables);
Diagnostics check_claims(const Tables& tables, const VersionClaims& claims);
Diagnostics check_step(const Tables& tables);
Diagnostics check_progress(const Tables& tables);
/// Of a schedule without messages: everything that an action needs arrives as soon as it is made.
Diagnostics check_compute_progress(const Tables& tables);
Diagnostics check_memory(const Tables& tables, const ir::Cluster& cluster, const MemoryOptions& options);

}  // namespace graphpipe::scheduler::check
