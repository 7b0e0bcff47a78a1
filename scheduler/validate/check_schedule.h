#pragma once
// The independent check of a schedule: shares nothing with the lowering that makes one, and does not simulate time.
//
// 1 Actions  Every index exists and belongs to the action's device.
// 2 Items    Forwards tile each stage's samples; each item has its backward once, whole or split, in order; stages
//            without a backward have none; R where the stage recomputes.
// 3 Messages The messages of an item and edge tile its range; each lies inside one item at both ends. Sends follow, and
//            receives precede, the action they belong to; the k-th send meets the k-th receive; mixed values travel
//            whole.
// 4 Slots    One ring slot per item while it lives, and never two items in one.
// 5 Versions All actions of an item use the version of its forward, which has been published; steps count up; versions
//            that a step leaves behind are used before their release and released by the end. What is claimed of them
//            (version_claims.h) holds.
// 6 Updates  The updates of every trained stage tile the step's samples (a synchronous step has one), each with one
//            reduction where one is needed, after its items' backwards and before its step; the copies of a weight make
//            the same updates; reductions in one order on all devices.
// 7 Progress No program waits forever when sends buffer, nor when they block until their receive (rendezvous).
// 8 Memory   The peak in list order stays within the device, by a count of its own (peak_memory.h).

#include <optional>

#include "ir/cluster.h"
#include "scheduler/memory/memory_options.h"
#include "scheduler/validate/version_claims.h"

namespace graphpipe::scheduler {

struct CheckOptions {
  MemoryOptions memory;
  bool check_memory = true;
  /// Check 6. False for compute and transfers alone.
  bool synchronous = true;
  VersionClaims claims;
};

/// Errors: kBadSchedule, and kNoFeasiblePlan for memory. Each names the first offending action of its kind; a later
/// check runs only where the earlier ones found nothing.
Status check_schedule(const StageGraph& graph, const ir::Cluster& cluster, const Schedule& schedule,
                      const CheckOptions& options = {});

/// The first offending action: where it stands (program -1: no place can be named; position -1: no action of the
/// program) and what is wrong with it, to be read after the action's name.
struct ScheduleProblem {
  int program = -1;
  int position = -1;
  std::string what;
  std::string hint;
  /// An action that should be there and is not: it was expected before `position`, or at the end where that is the
  /// program's length.
  std::optional<Action> missing;
};
/// The same checks, for who wants to name places in words of their own. Nothing where the schedule is right.
std::optional<ScheduleProblem> first_problem(const StageGraph& graph, const ir::Cluster& cluster,
                                             const Schedule& schedule, const CheckOptions& options = {});

/// Checks 1, 2 and 7 of a schedule that holds compute actions only: items, and whether its orders wait for each other
/// in a cycle.
std::optional<ScheduleProblem> first_compute_problem(const StageGraph& graph, const ir::Cluster& cluster,
                                                     const Schedule& compute);

}  // namespace graphpipe::scheduler
