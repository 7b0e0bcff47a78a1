#pragma once
// Seeded random plans that parse_plan accepts.

#include <cstdint>
#include <random>
#include <string>

#include "ir/plan.h"

namespace graphpipe::tests {

inline ir::Schedule random_schedule(std::mt19937_64& random) {
  const auto below = [&](int limit) { return std::uniform_int_distribution<int>(0, limit - 1)(random); };
  ir::Schedule schedule{.policy = "kfkb", .programs = {}, .slots = {}};
  for (int device = 0, devices = below(4); device < devices; ++device) {
    ir::Program program{.device = ir::DeviceId(static_cast<size_t>(device)), .actions = {}};
    for (int i = below(9); i > 0; --i) {
      ir::Action action{.op = static_cast<ir::ActionOp>(below(wire::kActionOpCount)),
                        .stream = static_cast<wire::Stream>(below(3)),
                        .stage = below(4),
                        .replica = below(2)};
      action.range.first = below(5);
      action.range.last = action.range.first + below(5);
      if (below(2) == 0) action.edge = below(4);
      if (below(2) == 0) action.peer_replica = below(4);
      if (below(2) == 0) action.slot = below(4);
      action.version = below(3);
      action.overlaps_next = below(4) == 0;
      program.actions.push_back(action);
    }
    schedule.programs.push_back(std::move(program));
  }
  for (int i = below(4); i > 0; --i) schedule.slots.push_back(below(9));
  if (below(2) == 0)
    for (size_t i = 0; i < schedule.programs.size(); ++i) schedule.starts.push_back(Ticks(below(1000)));
  return schedule;
}

inline ir::Plan random_plan(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](int limit) { return std::uniform_int_distribution<int>(0, limit - 1)(random); };
  const auto name = [&] {
    static constexpr const char* kEnds[] = {"", "/Conv", "\"", "\\x41\n", "\xff\x01", "\xe2\x82\xac"};
    return ModelText("n" + std::to_string(below(100)) + kEnds[below(6)]);
  };
  ir::Plan plan;
  if (below(2) == 0) plan.model_digest = std::string(64, 'a');
  if (below(4) > 0) {
    plan.spec.loss = {.kind = "bce", .output = name(), .label = name()};
    if (below(2) == 0) plan.spec.loss.options.set("ignore", int64_t{below(100)} - 50);
  }
  plan.spec.optimizer = below(2) == 0 ? "sgd" : "adamw";
  plan.batch = Samples(below(64) + 1);
  plan.spec.batch_norm = static_cast<ir::BatchNormMode>(below(4));
  plan.spec.contrastive = below(2) == 0 ? ir::SampleScope::kBatch : ir::SampleScope::kMicroBatch;
  plan.spec.precision = static_cast<ir::Precision>(below(3));
  plan.spec.dropout = below(2) == 0;
  plan.spec.accepts_losses = below(2) == 0;
  plan.execution = static_cast<ir::Execution>(below(2));
  plan.seed = random();
  plan.threads = below(4) + 1;
  plan.planner = "graphpipe";
  for (int i = below(3); i > 0; --i) plan.spec.bindings.push_back({name(), below(100)});
  for (int i = below(3); i > 0; --i) plan.spec.freeze.push_back(name());
  plan.spec.parameter_rules = name();
  plan.spec.path = name();
  plan.profile = name();
  if (below(4) > 0) plan.cluster = ir::equal_devices(below(8) + 1);
  if (!plan.cluster.devices.empty() && below(2) == 0) plan.cluster.runtime.action = Seconds(1e-6);
  const int stages = below(4) + 1;
  for (int s = 0; s < stages; ++s) {
    ir::StageChoice choice{.devices = {ir::DeviceId(static_cast<size_t>(s))},
                           .micro_batch = Samples(below(static_cast<int>(plan.batch.count)) + 1),
                           .k = below(3) + 1,
                           .mode = static_cast<ir::ReplicaMode>(below(2)),
                           .recompute = below(2) == 0,
                           .shard_optimizer_state = below(2) == 0};
    if (below(4) == 0) choice.degree = below(8) + 1;
    if (below(3) == 0) choice.devices.emplace_back(static_cast<size_t>(stages + s));
    plan.assignment.choice.push_back(std::move(choice));
    plan.assignment.stage_of.push_back(ir::StageId(static_cast<size_t>(s)));
  }
  for (int i = below(9); i > 0; --i)
    plan.assignment.stage_of.push_back(ir::StageId(static_cast<size_t>(below(stages))));
  if (below(3) == 0)
    for (size_t i = 0; i < plan.assignment.stage_of.size(); ++i) plan.assignment.alternative.push_back(below(5));
  if (below(2) == 0)
    for (size_t i = 0; i < plan.assignment.stage_of.size(); ++i) plan.labels.push_back(name());
  if (below(2) == 0) plan.schedule = random_schedule(random);
  return plan;
}

}  // namespace graphpipe::tests
