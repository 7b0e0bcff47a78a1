#include "tests/optimizers/scheduled_chain.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "scheduler/build_schedule.h"
#include "scheduler/policies/policies.h"
#include "scheduler/standalone/policy_schedule.h"

namespace graphpipe::tests {
namespace {

using runtime::test::ChainSchedule;
using scheduler::StageShape;

int ranks_for(StageShape shape, int stages) {
  if (shape == StageShape::kReplicas) return 2;
  return shape == StageShape::kLoop || shape == StageShape::kV ? stages / 2 : stages;
}

ir::StageGraph stages_for(const scheduler::Policy& policy, const ScheduledChain& chain) {
  const int ranks = ranks_for(policy.shape, chain.stages);
  const bool replicas = policy.shape == StageShape::kReplicas;
  auto graph = scheduler::policy_schedule(
      policy,
      {.ranks = ranks, .chunks = replicas ? 1 : chain.stages / ranks, .micro_batches = chain.samples, .costs = {}});
  REQUIRE(graph.ok());
  REQUIRE(graph->stages.size() == static_cast<size_t>(chain.stages));
  // All stages train: each has its update, and replicas add their gradients up.
  for (ir::Stage& stage : graph->stages) {
    stage.weight_bytes = stage.trainable_weight_bytes = Bytes(1);
    stage.trainable_tensors = 1;
  }
  return *std::move(graph);
}

void add_tables(const ir::StageGraph& graph, const ir::Schedule& schedule, ChainSchedule& out) {
  std::map<ir::DeviceId, int32_t> rank_of;
  for (const ir::Program& program : schedule.programs) {
    rank_of.emplace(program.device, static_cast<int32_t>(rank_of.size()));
    out.actions.push_back(program.actions);
  }
  for (const ir::StageId id : graph.stage_ids()) {
    const ir::StageChoice& choice = graph.stages[id].choice;
    const auto stage = static_cast<int32_t>(id.index());
    out.stages.push_back({.micro_batch = 1,
                          .replicas = static_cast<int32_t>(choice.devices.size()),
                          .mode = choice.mode,
                          .slots = schedule.slots[id]});
    for (size_t replica = 0; replica < choice.devices.size(); ++replica)
      out.placement.push_back({stage, static_cast<int32_t>(replica), rank_of.at(choice.devices[replica])});
  }
}

}  // namespace

ChainSchedule schedule_of(const ScheduledChain& chain) {
  const scheduler::Policy* policy = scheduler::find_policy(chain.policy);
  REQUIRE(policy != nullptr);
  const ir::StageGraph graph = stages_for(*policy, chain);
  const auto built =
      scheduler::build_schedule(graph, scheduler::standalone_cluster(ranks_for(policy->shape, chain.stages)),
                                {.policy = chain.policy,
                                 .choices = {.vertical_sync = chain.vertical_sync},
                                 .in_flight = {},
                                 .lowering = {},
                                 .memory = {},
                                 .simulation = {}});
  if (!built) FAIL(to_line(built.problems().front()));
  ChainSchedule out;
  add_tables(graph, built->schedule, out);
  // The loss of a sample is divided by what counts in its update.
  for (const auto& actions : out.actions)
    for (const wire::ActionRow& row : actions)
      if (row.op == wire::ActionOp::kStep && row.stage + 1 == chain.stages && row.replica == 0)
        out.loss_updates.push_back(row.range);
  std::ranges::sort(out.loss_updates, {}, &wire::SampleRange::first);
  if (out.loss_updates.size() == 1) out.loss_updates.clear();
  return out;
}

std::vector<PolicyCase> policy_cases() {
  std::vector<PolicyCase> cases;
  for (const scheduler::Policy& policy : scheduler::all_policies()) {
    // `auto` takes one of the others.
    if (policy.forward_only || policy.tries_others) continue;
    const std::string name(policy.name);
    const bool copies = policy.shape == scheduler::StageShape::kReplicas;
    const std::string mode = !policy.asynchronous ? "synchronous"
                             : copies             ? "server"
                             : name == "2bw"      ? "double-buffer"
                                                  : "stashing";
    cases.push_back({{.policy = name, .stages = copies ? 1 : 4}, mode});
    if (name.starts_with("pipedream")) cases.push_back({{.policy = name, .vertical_sync = true}, "vertical-sync"});
  }
  return cases;
}

}  // namespace graphpipe::tests
