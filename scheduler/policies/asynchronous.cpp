// Schedules whose weights change inside the step: 1F1B without a flush (PipeDream, its round-robin form, 2BW) and data
// parallelism with a parameter server. They differ in two integers per stage: the samples of an update, and how many
// samples the version that an item reads lags behind; docs/schedules.md, section 3.

#include <algorithm>
#include <map>

#include "scheduler/lowering/insert_transfers.h"
#include "scheduler/lowering/updates.h"
#include "scheduler/policies/in_flight_rules.h"
#include "scheduler/policies/policies.h"
#include "support/integer_math.h"

namespace graphpipe::scheduler {
namespace {

/// The samples after which all stages are at the start of a round.
Result<int64_t> common_update_round(const StageGraph& graph, std::string_view policy) {
  if (const auto common = common_round(graph, UseK::kNo, graph.batch.count)) return *common;
  return refused(policy, text("the micro-batches of the stages meet only after more than ", graph.batch, " samples"),
                 "use micro-batch sizes that divide each other, or a larger batch");
}

/// Per stage: the samples that its replicas begin before their first backward, less one round.
IdMap<StageId, int64_t> samples_ahead(const StageGraph& graph, const Schedule& compute) {
  IdMap<StageId, int64_t> ahead(graph.stages.size());
  std::map<std::pair<int32_t, int32_t>, int64_t> forwards;
  for (const ir::Program& program : compute.programs)
    for (const Action& action : program.actions) {
      const StageId stage(static_cast<size_t>(action.stage));
      int64_t& count = forwards[{action.stage, action.replica}];
      if (count < 0) continue;
      if (action.op == ActionOp::kForward) {
        ++count;
        continue;
      }
      ahead[stage] = std::max(ahead[stage], (count - 1) * graph.stages[stage].choice.samples_of_turns());
      count = -1;
    }
  return ahead;
}

/// Weight stashing: every stage updates after each round and reads its newest weights.
IdMap<StageId, UpdateRule> stashing(const StageGraph& graph, const Schedule& compute) {
  const IdMap<StageId, int64_t> ahead = samples_ahead(graph, compute);
  IdMap<StageId, UpdateRule> rules(graph.stages.size());
  for (const StageId stage : graph.stage_ids())
    rules[stage] = {.update = graph.stages[stage].choice.samples_of_turns(), .lag = ahead[stage]};
  return rules;
}

/// One update and one lag for all stages, so that a sample meets weights of one age everywhere.
IdMap<StageId, UpdateRule> equal_age(const StageGraph& graph, const Schedule& compute, int64_t update) {
  int64_t lag = 0;
  for (const int64_t ahead : samples_ahead(graph, compute)) lag = std::max(lag, ahead);
  return IdMap<StageId, UpdateRule>(graph.stages.size(), UpdateRule{update, round_up(lag, update)});
}

/// Whether a device has several lists, and some stage reduces: then steps may deadlock.
bool may_deadlock(const StageGraph& graph, const Schedule& compute) {
  const IdMap<StageId, int> groups = reduction_groups(graph);
  if (std::all_of(groups.begin(), groups.end(), [](int group) { return group < 0; })) return false;
  for (const ir::Program& program : compute.programs)
    for (const Action& action : program.actions)
      if (action.stage != program.actions.front().stage) return true;
  return false;
}

/// A step waits for the contributions of the other replicas, and these may stand behind steps of other stages that wait
/// for this device. The further versions lag behind, the later their steps come: so updates are added to the lags until
/// the lists can run, at the latest when no step comes before the last forward.
Result<Schedule> add_updates_that_run(const StageGraph& graph, const Schedule& compute,
                                      const IdMap<StageId, UpdateRule>& rules) {
  const bool cycles = may_deadlock(graph, compute);
  for (int64_t more = 0;; more = std::max<int64_t>(1, 2 * more)) {
    IdMap<StageId, UpdateRule> raised = rules;
    bool furthest = true;
    for (UpdateRule& rule : raised) {
      rule.lag = std::min(rule.lag + more * rule.update, round_up(graph.batch.count, rule.update));
      furthest = furthest && rule.lag >= graph.batch.count;
    }
    GP_TRY(Schedule schedule, add_updates(graph, compute, std::move(raised)));
    if (!cycles || furthest || insert_transfers(graph, schedule).ok()) return schedule;
  }
}

IdMap<StageId, Samples> numbers_of(const PolicyRequest& request) {
  return request.in_flight.empty() ? replicas_in_flight(request.graph) : request.in_flight;
}

/// 1F1B without a flush. A stage that waits for the whole batch is refused: an update between micro-batches has no
/// gradient of it.
Result<Schedule> without_flush(const PolicyRequest& request, const char* policy) {
  GP_TRY_VOID(expect_one_micro_batch(request.graph, policy, OtherSizes::kTaken));
  GP_TRY(const Schedule compute, one_forward_one_backward(request.graph, numbers_of(request), policy));
  if (!request.choices.vertical_sync)
    return add_updates_that_run(request.graph, compute, stashing(request.graph, compute));
  GP_TRY(const int64_t common, common_update_round(request.graph, policy));
  return add_updates_that_run(request.graph, compute, equal_age(request.graph, compute, common));
}

/// The one stage of a data-parallel plan runs item after item on every replica.
Result<Schedule> item_after_item(const PolicyRequest& request, const char* policy) {
  if (request.graph.stages.size() != 1)
    return refused(policy, text(request.graph.stages.size(), " stages"), "put the whole model into one stage");
  const ir::StageChoice& choice = request.graph.stages[StageId(size_t{0})].choice;
  return one_forward_one_backward(request.graph, IdMap<StageId, Samples>(1, Samples(choice.samples_of_turns())),
                                  policy);
}

/// A multiple of the common round that, where there are several steps, divides a step.
int64_t shortest_update(const StageGraph& graph, int64_t max_in_flight, int64_t common) {
  const int64_t batch = graph.batch.count / graph.batches;
  int64_t update = round_up(max_in_flight, common);
  while (graph.batches > 1 && update < batch && batch % update != 0) update += common;
  return update;
}

}  // namespace

Result<Schedule> order_pipedream(const PolicyRequest& request) {
  for (const ir::Stage& stage : request.graph.stages)
    if (stage.choice.turns() > 1)
      return refused("pipedream", "a stage has replicas that take turns", "use pipedream-rr");
  return without_flush(request, "pipedream");
}

Result<Schedule> order_pipedream_rr(const PolicyRequest& request) {
  for (const ir::Stage& stage : request.graph.stages)
    if (stage.choice.devices.size() > 1 && stage.choice.mode != ir::ReplicaMode::kRoundRobin)
      return refused("pipedream-rr", "a stage has replicas that divide micro-batches", "use pipedream");
  return without_flush(request, "pipedream-rr");
}

/// Update t + 1 uses the gradient at the weights of update t - 1: what is in flight when an update is made was started
/// with the weights before it, and nothing older is in flight if an update takes at least as many samples as are in
/// flight.
Result<Schedule> order_2bw(const PolicyRequest& request) {
  GP_TRY_VOID(expect_one_micro_batch(request.graph, "2bw", OtherSizes::kTaken));
  const IdMap<StageId, Samples> in_flight = numbers_of(request);
  GP_TRY(const Schedule compute, one_forward_one_backward(request.graph, in_flight, "2bw"));
  GP_TRY(const int64_t common, common_update_round(request.graph, "2bw"));
  int64_t max_in_flight = 0;
  for (const Samples number : in_flight) max_in_flight = std::max(max_in_flight, number.count);
  const int64_t update = request.choices.update.count > 0 ? request.choices.update.count
                                                          : shortest_update(request.graph, max_in_flight, common);
  if (update % common != 0 || update < max_in_flight)
    return refused("2bw", text("updates of ", update, " samples with up to ", max_in_flight, " in flight"),
                   text("use a multiple of ", common, " samples that is at least ", max_in_flight));
  const int64_t batch = request.graph.batch.count / request.graph.batches;
  if (request.choices.update.count > batch)
    return refused("2bw", text("updates of ", update, " samples are longer than the batch of ", batch),
                   text("take updates of at most ", batch, " samples, or a larger --batch"));
  const bool given = request.choices.update.count > 0, cycles = may_deadlock(request.graph, compute);
  const int64_t whole = round_up(request.graph.batch.count, common);
  for (int64_t length = update;; length = std::min(shortest_update(request.graph, 2 * length, common), whole)) {
    const IdMap<StageId, UpdateRule> rules(request.graph.stages.size(), UpdateRule{length, length});
    GP_TRY(Schedule schedule, add_updates(request.graph, compute, rules));
    if (!cycles || length >= request.graph.batch.count || insert_transfers(request.graph, schedule).ok())
      return schedule;
    if (given)
      return refused("2bw",
                     text("with updates of ", length, " samples, replicas on shared devices wait for each other"),
                     "use longer updates, or leave --update out");
  }
}

Result<Schedule> order_data_parallel(const PolicyRequest& request) { return item_after_item(request, "data-parallel"); }

/// A worker reads what the server has when the worker's own last gradient has been applied: all but one of the workers
/// have sent gradients since.
Result<Schedule> order_parameter_server(const PolicyRequest& request) {
  GP_TRY(const Schedule compute, item_after_item(request, "parameter-server"));
  const ir::StageChoice& choice = request.graph.stages[StageId(size_t{0})].choice;
  const int64_t b = choice.micro_batch.count;
  return add_updates(request.graph, compute,
                     IdMap<StageId, UpdateRule>(1, UpdateRule{.update = b, .lag = (choice.turns() - 1) * b}));
}

}  // namespace graphpipe::scheduler
