#include "scheduler/lowering/updates.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "scheduler/lowering/insert_transfers.h"
#include "scheduler/lowering/trained_replicas.h"
#include "support/integer_math.h"

namespace graphpipe::scheduler {
namespace {

/// Adds the updates of one replica of a stage while its program is written.
class Updater {
 public:
  Updater(StageId stage, int replica, const UpdateRule& rule, bool reduces, int64_t batch)
      : stage_(stage),
        replica_(replica),
        rule_(rule),
        reduces_(reduces),
        batch_(batch),
        items_left_(static_cast<size_t>(ceil_div(batch, rule.update))) {}

  int32_t version_of(const Action& action) const {
    const int64_t seen = std::max<int64_t>(0, action.range.first - rule_.lag);
    return static_cast<int32_t>(std::min(seen / rule_.update, static_cast<int64_t>(items_left_.size())));
  }

  /// Counts what the list holds, before it is written.
  void note(const Action& action) {
    if (ir::makes_weight_gradients(action.op)) ++items_left_[update_of(action)];
    ++reads_left_[version_of(action)];
  }

  /// Writes the action with what belongs before and after it; false where the version cannot be there yet.
  bool write(Action action, std::vector<Action>& list) {
    action.version = version_of(action);
    if (action.op == ActionOp::kForward) {
      while (stepped_ < action.version)
        if (items_left_[static_cast<size_t>(stepped_)] > 0) return false;
        else step(list);
      for (; published_ < action.version; ++published_)
        if (published_ + 1 == action.version) list.push_back(row(ActionOp::kPublish, published_, action.version));
    }
    list.push_back(action);
    if (--reads_left_[action.version] == 0 && action.version < stepped_)
      list.push_back(row(ActionOp::kFreeVersion, action.version, action.version));
    if (!ir::makes_weight_gradients(action.op)) return true;
    --items_left_[update_of(action)];
    if (reduces_) reduce_done(list);
    else
      while (stepped_ < count() && items_left_[static_cast<size_t>(stepped_)] == 0) step(list);
    return true;
  }

  void finish(std::vector<Action>& list) {
    while (stepped_ < count()) step(list);
  }

 private:
  int32_t count() const { return static_cast<int32_t>(items_left_.size()); }
  size_t update_of(const Action& action) const { return static_cast<size_t>(action.range.first / rule_.update); }

  /// An action about update number `update`.
  Action row(ActionOp op, int32_t update, int32_t version) const {
    const int64_t first = update * rule_.update;
    Action action = compute_action(op, stage_, replica_, {first, std::min(first + rule_.update, batch_)});
    action.version = version;
    return action;
  }

  /// Contributes to the updates whose items are done. An update in which this replica has no items is contributed to
  /// together with the next, so that all replicas list their updates in ascending order.
  void reduce_done(std::vector<Action>& list) {
    int32_t last = reduced_;
    while (last < count() && items_left_[static_cast<size_t>(last)] == 0) ++last;
    while (reduced_ < last) list.push_back(row(ActionOp::kReduceGradient, reduced_++, 0));
  }

  void step(std::vector<Action>& list) {
    if (reduces_ && reduced_ <= stepped_) list.push_back(row(ActionOp::kReduceGradient, reduced_++, 0));
    list.push_back(row(ActionOp::kStep, stepped_, stepped_ + 1));
    ++stepped_;
  }

  const StageId stage_;
  const int replica_;
  const UpdateRule rule_;
  const bool reduces_;
  const int64_t batch_;
  /// Per update: items of this replica whose weight gradient is still to come.
  std::vector<int32_t> items_left_;
  /// Per version: compute actions of this replica that read it and are still to come.
  std::map<int32_t, int64_t> reads_left_;
  int32_t reduced_ = 0, stepped_ = 0, published_ = 0;
};

/// Stages that reduce together make the same updates.
void join_groups(const StageGraph& graph, IdMap<StageId, UpdateRule>& rules) {
  const IdMap<StageId, int> groups = reduction_groups(graph);
  std::map<int, UpdateRule> joined;
  for (const StageId stage : graph.stage_ids()) {
    if (groups[stage] < 0) continue;
    const auto [found, added] = joined.emplace(groups[stage], rules[stage]);
    found->second.update = std::lcm(found->second.update, rules[stage].update);
    found->second.lag = std::max(found->second.lag, rules[stage].lag);
  }
  for (auto& [group, rule] : joined) rule.lag = round_up(rule.lag, rule.update);
  for (const StageId stage : graph.stage_ids())
    if (groups[stage] >= 0) rules[stage] = joined.at(groups[stage]);
}

/// Each step has a learning rate and a loss of its own, so no update may span two.
Status check_steps(const StageGraph& graph, const std::string& policy, const IdMap<StageId, UpdateRule>& rules) {
  const int64_t batch = graph.batch.count / graph.batches;
  for (const UpdateRule& rule : rules)
    if (graph.batches > 1 && batch % rule.update != 0)
      return Diagnostic{.code = Code::kBadPlan,
                        .message = text(policy, ": updates of ", rule.update, " samples do not divide the batch of ",
                                        batch, ", so that one would be of two steps"),
                        .hint = "take updates that divide the batch, or --drain-every 1"};
  return Ok{};
}

}  // namespace

bool has_updates(const Schedule& schedule) {
  return std::any_of(schedule.programs.begin(), schedule.programs.end(), [](const ir::Program& program) {
    return std::any_of(program.actions.begin(), program.actions.end(),
                       [](const Action& action) { return ir::is_update(action.op); });
  });
}

Result<Schedule> add_updates(const StageGraph& graph, const Schedule& compute, IdMap<StageId, UpdateRule> rules) {
  join_groups(graph, rules);
  GP_TRY_VOID(check_steps(graph, compute.policy, rules));
  std::map<ir::DeviceId, std::vector<TrainedReplica>> trained = trained_replicas(graph);
  Schedule schedule{.policy = compute.policy, .programs = {}, .slots = {}};
  for (const ir::Program& program : compute.programs) {
    // A replica without a micro-batch makes all updates too: the others' gradients reach it as well.
    std::map<ReplicaKey, Updater> updaters;
    for (const TrainedReplica& own : trained[program.device])
      updaters.emplace(ReplicaKey(static_cast<int32_t>(own.stage.index()), own.replica),
                       Updater(own.stage, own.replica, rules[own.stage], own.group >= 0, graph.batch.count));
    for (const Action& action : program.actions)
      if (const auto updater = updaters.find(replica_key(action)); updater != updaters.end())
        updater->second.note(action);
    ir::Program& out = schedule.programs.emplace_back(ir::Program{program.device, {}});
    for (const Action& action : program.actions) {
      const auto updater = updaters.find(replica_key(action));
      if (updater == updaters.end()) out.actions.push_back(action);
      else if (!updater->second.write(action, out.actions))
        return Diagnostic{.code = Code::kBadPlan,
                          .message = text(compute.policy, ": stage ", action.stage, " would run samples from ",
                                          action.range.first, " with weights that are made only later"),
                          .hint = "use longer updates, or fewer samples in flight"};
    }
    for (auto& [key, updater] : updaters) updater.finish(out.actions);
  }
  return schedule;
}

}  // namespace graphpipe::scheduler
