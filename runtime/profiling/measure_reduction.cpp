// The all-reduce of two replicas, as their programs run it.

#include <ATen/ops/zeros.h>

#include <algorithm>

#include "runtime/collectives/reduce.h"
#include "runtime/executor/plan_channels.h"
#include "runtime/profiling/measure.h"
#include "runtime/profiling/measure_rates.h"
#include "runtime/transport/transports.h"
#include "support/median.h"

namespace graphpipe::runtime {
namespace {

/// Stages that are reduced in turn: with the other process's, and what messages pass through, more than the caches of
/// most CPUs hold, and each in less than a time slice of the system's scheduler, so that some are undisturbed.
constexpr int32_t kReducedStages = 16;
constexpr int64_t kReducedBytes = 2 * kBeyondCachesOfCpus / kReducedStages;
constexpr double kReductionStallSeconds = 60;

/// Stages with a weight and two replicas each.
struct TwoReplicas {
  TwoReplicas() {
    param.tensor.dims = dims;
    for (int32_t stage = 0; stage < kReducedStages; ++stage) {
      entries[stage].params = {&param, 1};
      entries[stage].stage = stage;
      rows[stage].replicas = 2;
      for (const int32_t replica : {0, 1}) placement[2 * stage + replica] = {stage, replica, replica};
    }
    plan = {.plan_digest = "", .batch = 2, .device_count = 2, .stages = rows, .placement = placement};
  }
  TwoReplicas(const TwoReplicas&) = delete;
  TwoReplicas& operator=(const TwoReplicas&) = delete;

  /// Of one of them, on the device with this rank.
  StageState state(int32_t stage, int32_t rank, const Device& device) const {
    StageState state{.entry = &entries[stage],
                     .replica = rank,
                     .trainable = trainable_parameters(entries[stage]),
                     .optimizer = Optimizer("sgd", {})};
    state.weights = {device.upload(at::zeros({dims[0].factor}))};
    gradients_of(state, 0) = {device.upload(at::zeros({dims[0].factor}))};
    return state;
  }

  DimRow dims[1] = {{.factor = kReducedBytes / static_cast<int64_t>(sizeof(float)), .power = 0}};
  ParamRow param{.name = "w"};
  StageEntry entries[kReducedStages];
  StageRow rows[kReducedStages];
  PlacementRow placement[2 * kReducedStages];
  PlanTable plan;
};

}  // namespace

double measure_additions_of_two(const Device& device, Store& store, int32_t rank, bool may_spin,
                                const MessageSeconds& link, const MessageSeconds& busy, MessageRounds rounds) {
  const TwoReplicas replicas;
  ResolvedProgram resolved;
  std::vector<StageState> states;
  for (int32_t stage = 0; stage < kReducedStages; ++stage) {
    resolved.instances.push_back({.entry = &replicas.entries[stage], .replica = rank});
    states.push_back(replicas.state(stage, rank, device));
  }
  const std::vector<ChannelSpec> specs = plan_channels({.device = rank, .plan = &replicas.plan}, resolved);
  const TransportSetup setup{
      .rank = rank, .world_size = 2, .store = &store, .channels = remote_channels(specs), .may_spin = may_spin};
  Channels channels(replicas.plan, rank, specs, open_shm(setup), kReductionStallSeconds, device.copies());
  const wire::SampleRange update{0, 2};
  std::vector<std::unique_ptr<Reduction>> reductions;
  for (StageState& state : states)
    reductions.push_back(std::make_unique<Reduction>(replicas.plan, channels, device, state, update, nullptr));
  std::vector<double> seconds;
  // Each stage's first touches its memory.
  const int warm_ups = rounds.warm_ups + kReducedStages;
  for (int step = 0; step < warm_ups + rounds.steps; ++step) {
    const int32_t stage = step % kReducedStages;
    Reduction& reduction = *reductions[stage];
    store.barrier(text("reduction", step), 2);
    const Clock::time_point start = Clock::now();
    channels.publish({.op = wire::ActionOp::kReduceGradient, .stage = stage, .replica = rank, .range = update}, step);
    reduction.begin(step);
    channels.wait_until([&] { return reduction.finished(); }, [&] { return reduction.waits_for(); },
                        [&] { reduction.advance(); });
    device.finish();
    if (step >= warm_ups) seconds.push_back(seconds_since(start));
    reduction.reset();
  }
  channels.leave("");
  const double whole = rounds.fastest ? std::ranges::min(seconds) : median(std::move(seconds));
  const double per_byte = whole / static_cast<double>(kReducedBytes);
  // Each sends half of the bytes twice, and adds half of them (ir::ring_time). Zero would say that nothing was
  // measured.
  constexpr double kMinSeconds = 1e-15;
  return std::max(kMinSeconds, 2 * (per_byte - link.per_byte - busy.per_byte));
}

}  // namespace graphpipe::runtime
