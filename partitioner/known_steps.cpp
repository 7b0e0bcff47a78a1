#include "partitioner/known_steps.h"

namespace graphpipe::partitioner {
namespace {

/// Of what plans of one search differ in; equal plans have equal ones.
size_t hash_of(const ir::Assignment& plan) {
  size_t hash = plan.choice.size();
  const auto add = [&](size_t number) { hash = (hash ^ number) * 0x100000001b3; };  // FNV-1a
  for (const ir::StageId stage : plan.stage_of) add(stage.index());
  for (const ir::StageChoice& choice : plan.choice) {
    add(static_cast<size_t>(choice.micro_batch.count));
    add(static_cast<size_t>(choice.k));
    add(static_cast<size_t>(choice.mode));
    add(choice.recompute ? 1 : 0);
    for (const ir::DeviceId device : choice.devices) add(device.index());
  }
  return hash;
}

}  // namespace

KnownSteps::Known& KnownSteps::entry_of(const ir::Assignment& plan) {
  const size_t hash = hash_of(plan);
  const std::lock_guard lock(mutex_);
  const auto [first, last] = known_.equal_range(hash);
  for (auto known = first; known != last; ++known)
    if (known->second.plan == plan) return known->second;
  return known_.emplace(hash, plan)->second;
}

double KnownSteps::of(const ir::Assignment& plan) {
  Known& entry = entry_of(plan);
  std::call_once(entry.once, [&] { entry.step = evaluate_(plan); });
  return entry.step;
}

}  // namespace graphpipe::partitioner
