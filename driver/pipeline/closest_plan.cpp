#include "driver/pipeline/closest_plan.h"

#include <algorithm>
#include <limits>

#include "cost/in_flight.h"
#include "driver/launch/process.h"
#include "driver/pipeline/choose.h"
#include "scheduler/build_schedule.h"

namespace graphpipe::driver {
namespace {

/// How many nodes the plans have together that are compared, and at least so many plans.
constexpr size_t kMaxNodes = 20'000, kFewestPlans = 3;

std::optional<Lack> lack_of(Pipeline& pipeline) {
  const ir::Cluster& cluster = pipeline.plan.cluster;
  auto stages = ir::build_stage_graph(as_held(pipeline), pipeline.plan.assignment);
  if (!stages) return std::nullopt;
  pipeline.stages = std::move(*stages);
  scheduler::BuildOptions options = build_options(pipeline.plan.policy, pipeline.priced, pipeline.order);
  auto items = counted_items(pipeline);
  if (!items) return std::nullopt;
  options.memory.item = std::move(*items);
  options.in_flight = cost::in_flight(pipeline.stages, cluster).samples;
  const ir::Cluster roomy = ir::with_memory(cluster, std::numeric_limits<double>::infinity());
  const int64_t batches = std::max<int64_t>(1, pipeline.order.drain_every);
  const auto ordered = scheduler::order_batches(pipeline.stages, roomy, options, batches);
  if (!ordered) return std::nullopt;
  Lack worst{.device = {}, .bytes = Bytes(std::numeric_limits<int64_t>::min())};
  for (size_t i = 0; i < ordered->built.memory.size(); ++i) {
    const ir::DeviceId device = ordered->built.schedule.programs[i].device;
    const Bytes bytes = ordered->built.memory[i].peak - cluster.devices[device].memory;
    if (bytes > worst.bytes) worst = {device, bytes};
  }
  return worst;
}

}  // namespace

std::optional<Lack> smallest_lack(Pipeline& pipeline, std::span<const ir::Assignment> plans) {
  std::optional<Lack> smallest;
  const size_t max_plans = std::max(kFewestPlans, kMaxNodes / std::max<size_t>(1, pipeline.priced.nodes.size()));
  for (const ir::Assignment& plan : plans.first(std::min(max_plans, plans.size()))) {
    if (interrupted()) break;
    pipeline.plan.assignment = plan;
    const std::optional<Lack> lack = lack_of(pipeline);
    if (lack && (!smallest || lack->bytes < smallest->bytes)) smallest = lack;
  }
  return smallest;
}

}  // namespace graphpipe::driver
