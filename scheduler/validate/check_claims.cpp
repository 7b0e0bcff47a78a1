// Whether the schedule treats weight versions as is claimed.

#include <algorithm>
#include <map>
#include <set>

#include "scheduler/validate/check_tables.h"

namespace graphpipe::scheduler::check {
namespace {

bool is_trained_stage(const Tables& tables, int32_t stage) {
  return tables.graph.stages[StageId(static_cast<size_t>(stage))].is_trained();
}

Action flush_before(Action step) {
  step.op = ActionOp::kFlush;
  step.version = 0;
  return step;
}

Diagnostics check_synchronous(const Tables& tables) {
  Diagnostics problems;
  constexpr const char* kHint = "let one step at the end apply all samples, or do not call the schedule synchronous";
  std::set<std::pair<int32_t, int32_t>> flushed;
  for_each_action(tables, [&](Place place, const Action& action) {
    if (!problems.empty()) return;
    if (ir::is_compute(action.op) && action.version != 0)
      problems.push_back(tables.problem(place, "reads weights that a synchronous step makes only at its end", kHint));
    if (action.op == ActionOp::kStep && (action.range.first != 0 || action.range.last != tables.graph.batch.count))
      problems.push_back(tables.problem(place, "applies only a part of a synchronous step's samples", kHint));
    if (action.op == ActionOp::kFlush && action.range.last == tables.graph.batch.count)
      flushed.emplace(action.stage, action.replica);
    if (problems.empty() && action.op == ActionOp::kStep && !flushed.contains({action.stage, action.replica}))
      problems.push_back(tables.missing(place, flush_before(action), "a synchronous step ends all of its items first",
                                        "flush the stage before its reduction and its step"));
  });
  return problems;
}

/// The items of one trained stage in the order of their samples, with the age of the weights that each reads: the
/// samples whose updates these weights hold.
struct AgedItem {
  const CheckedItem* item = nullptr;
  int64_t age = 0;
};
using StageAges = std::vector<std::vector<AgedItem>>;

StageAges ages_of(const Tables& tables) {
  std::map<std::tuple<int32_t, int32_t, int32_t>, int64_t> age_of_version;
  for_each_action(tables, [&](Place, const Action& action) {
    if (action.op == ActionOp::kStep)
      age_of_version[{action.stage, action.replica, action.version}] = action.range.last;
  });
  IdMap<StageId, std::vector<AgedItem>> by_stage(tables.graph.stages.size());
  for (const CheckedItem& item : tables.items) {
    if (!tables.graph.stages[item.stage].is_trained()) continue;
    const Action& forward = tables.action({item.program, item.forward});
    const auto age = age_of_version.find({forward.stage, forward.replica, forward.version});
    by_stage[item.stage].push_back({&item, age == age_of_version.end() ? 0 : age->second});
  }
  StageAges ages;
  for (std::vector<AgedItem>& items : by_stage) {
    std::sort(items.begin(), items.end(),
              [](const AgedItem& a, const AgedItem& b) { return a.item->range.first < b.item->range.first; });
    if (!items.empty()) ages.push_back(std::move(items));
  }
  return ages;
}

/// The age that most of these items read; of equally many the smallest.
int64_t usual_age(const std::vector<const AgedItem*>& items) {
  std::map<int64_t, size_t> count;
  for (const AgedItem* item : items) ++count[item->age];
  return std::max_element(count.begin(), count.end(), [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

Diagnostics check_vertical_sync(const Tables& tables) {
  const StageAges ages = ages_of(tables);
  std::vector<size_t> next(ages.size(), 0);
  std::vector<const AgedItem*> now(ages.size());
  for (int64_t sample = 0; !ages.empty() && sample < tables.graph.batch.count;) {
    int64_t end = tables.graph.batch.count;
    for (size_t stage = 0; stage < ages.size(); ++stage) {
      while (ages[stage][next[stage]].item->range.last <= sample) ++next[stage];
      now[stage] = &ages[stage][next[stage]];
      end = std::min(end, now[stage]->item->range.last);
    }
    const int64_t usual = usual_age(now);
    for (const AgedItem* aged : now)
      if (aged->age != usual)
        return {tables.problem(Place{aged->item->program, aged->item->forward},
                               text("reads weights after ", aged->age, " samples, other stages run sample ", sample,
                                    " with weights after ", usual),
                               "let all stages read the version that the same samples have made")};
    sample = end;
  }
  return {};
}

Diagnostics check_delayed_updates(const Tables& tables) {
  int64_t update = 0;
  for_each_action(tables, [&](Place, const Action& action) {
    if (action.op == ActionOp::kStep && action.range.first == 0) update = std::max(update, action.range.size());
  });
  if (update == 0) return {};
  Diagnostics problems;
  for_each_action(tables, [&](Place place, const Action& action) {
    if (!problems.empty() || !is_trained_stage(tables, action.stage)) return;
    if (action.op == ActionOp::kStep) {
      const int64_t last = std::min(action.range.first + update, tables.graph.batch.count);
      if (action.range.first % update != 0 || action.range.last != last)
        problems.push_back(
            tables.problem(place, text("is not an update of ", update, " samples"), "make all updates of one length"));
    }
    if (!ir::is_compute(action.op)) return;
    const int64_t version = std::max<int64_t>(0, action.range.first / update - 1);
    if (action.version != version)
      problems.push_back(tables.problem(
          place, text("uses weight version ", action.version, ", updates delayed by one give it version ", version),
          "use the version that the update before the last has made"));
  });
  return problems;
}

Diagnostics check_live_versions(const Tables& tables, int max_versions) {
  for (size_t p = 0; p < tables.schedule.programs.size(); ++p) {
    const std::vector<int> held = ir::held_versions(tables.schedule.programs[p]);
    const auto over = std::find_if(held.begin(), held.end(), [&](int count) { return count > max_versions; });
    if (over != held.end())
      return {tables.problem(static_cast<int>(p), static_cast<int>(over - held.begin()),
                             text("makes weight version number ", *over, " at once, ", max_versions, " are claimed"),
                             "free versions earlier, or make updates longer")};
  }
  return {};
}

}  // namespace

Diagnostics check_claims(const Tables& tables, const VersionClaims& claims) {
  Diagnostics problems;
  if (claims.synchronous) problems = check_synchronous(tables);
  if (problems.empty() && claims.vertical_sync) problems = check_vertical_sync(tables);
  if (problems.empty() && claims.delayed_updates) problems = check_delayed_updates(tables);
  if (problems.empty() && claims.max_versions > 0) problems = check_live_versions(tables, claims.max_versions);
  return problems;
}

}  // namespace graphpipe::scheduler::check
