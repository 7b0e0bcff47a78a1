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

/// With the other process's, and what messages pass through, more than the caches of most CPUs.
constexpr int64_t kReducedBytes = 2 * kBeyondCachesOfCpus;
constexpr double kReductionStallSeconds = 60;

/// One stage with a weight and two replicas.
struct TwoReplicas {
  TwoReplicas() {
    param.tensor.dims = dims;
    entry.params = {&param, 1};
    entry.stage = 0;
    plan = {.plan_digest = "", .batch = 2, .device_count = 2, .stages = {&row, 1}, .placement = placement};
  }
  TwoReplicas(const TwoReplicas&) = delete;
  TwoReplicas& operator=(const TwoReplicas&) = delete;

  DimRow dims[1] = {{.factor = kReducedBytes / static_cast<int64_t>(sizeof(float)), .power = 0}};
  ParamRow param{.name = "w"};
  StageEntry entry;
  StageRow row{.replicas = 2};
  PlacementRow placement[2] = {{0, 0, 0}, {0, 1, 1}};
  PlanTable plan;
};

}  // namespace

double measure_additions_of_two(const Device& device, Store& store, int32_t rank, bool may_spin,
                                const MessageSeconds& link, const MessageSeconds& busy, MessageRounds rounds) {
  const TwoReplicas replicas;
  ResolvedProgram resolved;
  resolved.instances.push_back({.entry = &replicas.entry, .replica = rank});
  const std::vector<ChannelSpec> specs = plan_channels({.device = rank, .plan = &replicas.plan}, resolved);
  const TransportSetup setup{
      .rank = rank, .world_size = 2, .store = &store, .channels = remote_channels(specs), .may_spin = may_spin};
  Channels channels(replicas.plan, rank, specs, open_shm(setup), kReductionStallSeconds, device.copies());
  StageState state{.entry = &replicas.entry,
                   .replica = rank,
                   .trainable = trainable_parameters(replicas.entry),
                   .optimizer = Optimizer("sgd", {})};
  state.weights = {device.upload(at::zeros({replicas.dims[0].factor}))};
  gradients_of(state, 0) = {device.upload(at::zeros({replicas.dims[0].factor}))};
  const wire::SampleRange update{0, 2};
  Reduction reduction(replicas.plan, channels, device, state, update, nullptr);
  std::vector<double> seconds;
  for (int step = 0; step < rounds.warm_ups + rounds.steps; ++step) {
    store.barrier(text("reduction", step), 2);
    const Clock::time_point start = Clock::now();
    channels.publish({.op = wire::ActionOp::kReduceGradient, .stage = 0, .replica = rank, .range = update}, step);
    reduction.begin(step);
    channels.wait_until([&] { return reduction.finished(); }, [&] { return reduction.waits_for(); },
                        [&] { reduction.advance(); });
    device.finish();
    if (step >= rounds.warm_ups) seconds.push_back(seconds_since(start));
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
