#include "cost/limits.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "cost/memory.h"
#include "cost/update_time.h"
#include "ir/device_names.h"
#include "support/units.h"

namespace graphpipe::cost {

namespace {

using ir::DeviceId;
using ir::StageId;

/// Memory counts as the limit only where it slows the pipeline down by more than this factor.
constexpr double kNoticeable = 1.01;
/// Loads are even if the largest is less than this multiple of the mean.
constexpr double kUneven = 1.1;

int64_t percent(double share) { return std::llround(100 * share); }

std::string mebibytes(Bytes bytes) { return text(std::ceil(static_cast<double>(bytes.count) / 1048576), " MiB"); }

/// "stage 2 (device 3)" or "stage 2 (devices 3, 4)".
std::string stage_words(const ir::StageGraph& graph, StageId stage) {
  std::vector<size_t> numbers;
  for (const DeviceId device : graph.stages[stage].choice.devices) numbers.push_back(device.index());
  std::ranges::sort(numbers);
  return text("stage ", stage, " (", ir::device_names(numbers), ")");
}

/// The work of the busiest device, divided by the mean over all devices of the cluster.
double imbalance(const ir::StageGraph& graph, const ir::Cluster& cluster, const IdMap<StageId, StageCost>& costs) {
  std::map<DeviceId, double> load;
  double sum = 0;
  for (StageId stage : graph.stage_ids())
    for (DeviceId device : graph.stages[stage].choice.devices) {
      load[device] += costs[stage].compute_per_sample();
      sum += costs[stage].compute_per_sample();
    }
  double largest = 0;
  for (const auto& [device, seconds] : load) largest = std::max(largest, seconds);
  return sum > 0 ? largest * static_cast<double>(cluster.devices.size()) / sum : 1;
}

/// The number of devices that have a stage.
size_t used_devices(const ir::StageGraph& graph) {
  std::set<DeviceId> used;
  for (const ir::Stage& stage : graph.stages) used.insert(stage.choice.devices.begin(), stage.choice.devices.end());
  return used.size();
}

/// How to give the stage more micro-batches. Smaller ones are suggested only if half a micro-batch takes about half as
/// long, not if launch overhead dominates.
std::string more_micro_batches(const ir::StageGraph& graph, StageId id) {
  const ir::Stage& stage = graph.stages[id];
  const auto seconds = [&](double n) { return stage.total(n); };
  const double samples = static_cast<double>(stage.choice.item_samples().count);
  const bool halves = samples >= 2 && seconds(samples / 2) < 0.75 * seconds(samples);
  return halves ? "a larger batch, smaller micro-batches" : "a larger batch";
}

/// Bytes that the fullest device lacks for the in-flight numbers at which the bottleneck never waits.
Bytes lacking_for_full_speed(const ir::StageGraph& graph, const ir::Cluster& cluster,
                             const IdMap<StageId, StageCost>& costs) {
  const double fastest = std::max(bottleneck_period(graph, cluster, costs), std::numeric_limits<double>::min());
  return memory_shortfall(graph, cluster, in_flight_at(graph, costs, fastest));
}

/// The stage with the most work among `stage` and those that share a device with it: they load the device together.
StageId heaviest_beside(const ir::StageGraph& graph, const IdMap<StageId, StageCost>& costs, StageId stage) {
  const std::vector<DeviceId>& devices = graph.stages[stage].choice.devices;
  StageId heaviest = stage;
  for (StageId other : graph.stage_ids()) {
    if (costs[other].compute_per_sample() <= costs[heaviest].compute_per_sample()) continue;
    const auto shares = [&](DeviceId device) { return std::ranges::find(devices, device) != devices.end(); };
    if (std::ranges::any_of(graph.stages[other].choice.devices, shares)) heaviest = other;
  }
  return heaviest;
}

Limit steady_limit(const ir::StageGraph& graph, const ir::Cluster& cluster, const IdMap<StageId, StageCost>& costs,
                   StageId limiting, double share, bool takes_replicas) {
  const StageId stage = heaviest_beside(graph, costs, limiting);
  const std::string of_step = text(stage_words(graph, stage), ", ", percent(share), " % of the step");
  if (graph.one_sample)
    return {LimitKind::kMixing, stage, share,
            text("the work of ", of_step,
                 "; the model computes one sample at a time and so has no replicas: more stages, "
                 "or a faster device, would lift it")};
  if (!graph.stages[stage].may_have_replicas)
    return {LimitKind::kMixing, stage, share,
            text("the work of ", of_step, "; it works on the samples of a ",
                 graph.stages[stage].scope == ir::SampleScope::kBatch ? "batch" : "micro-batch",
                 " together and so has no replicas: a smaller stage around the operators that do, or a faster device, "
                 "would lift it")};
  const double over = imbalance(graph, cluster, costs);
  const std::string ratio = text(std::round(100 * over) / 100);
  if (over < kUneven)
    return {LimitKind::kWork, stage, share,
            text("the work of ", of_step, "; the devices are about equally busy: more or faster ones would lift it")};
  if (const size_t used = used_devices(graph); used < cluster.devices.size())
    return {
        LimitKind::kWork, stage, share,
        text("the work of ", of_step, "; ", used, " of ", cluster.devices.size(),
             " devices are used: more of them lift it only where their messages and sums of gradients cost less than "
             "they save")};
  const bool single = graph.stages[stage].nodes.size() == 1;
  const char* const way_out =
      takes_replicas ? (single ? "it is one operator, so replicas of it" : "a finer cut, or replicas of it,")
      : single       ? "it is one operator, so a policy that takes replicas, such as kfkb,"
                     : "a finer cut, or a policy that takes replicas, such as kfkb,";
  return {
      LimitKind::kWork, stage, share,
      text("the work of ", of_step, "; it has ", ratio, " times the mean of the devices: ", way_out, " would lift it")};
}

/// Of a step whose longest path is that of a link.
Limit link_limit(const ir::StageGraph& graph, const IterationTime& time, double step_seconds) {
  const double share = time.link_seconds / step_seconds;
  return {LimitKind::kLink, time.link_from, share,
          text("the messages from ", stage_words(graph, time.link_from), " to ", stage_words(graph, time.link_to), ", ",
               percent(share),
               " % of the step with those that share their link: a faster link, or a cut where less crosses, "
               "would lift it")};
}

/// Seconds in which the device with most to update does so once.
double longest_update(const ir::StageGraph& graph, const ir::Cluster& cluster) {
  return largest_device_sum(graph, [&](StageId stage) { return update_time(graph, cluster, stage).count; });
}

}  // namespace

std::string_view name_of(LimitKind kind) {
  switch (kind) {
    case LimitKind::kWork:
      return "work";
    case LimitKind::kMixing:
      return "mixing";
    case LimitKind::kLink:
      return "link";
    case LimitKind::kMemory:
      return "memory";
    case LimitKind::kWarmUpAndDrain:
      return "warm-up";
    case LimitKind::kReduction:
      return "reduction";
    case LimitKind::kUpdate:
      return "update";
    case LimitKind::kOrder:
      return "order";
  }
  return "work";
}

Limit limit_of(const ir::StageGraph& graph, const ir::Cluster& given, double step_seconds, int64_t updates,
               bool takes_replicas) {
  // An order may hold more in flight than bounds of memory allow, where the code of its stages takes less.
  const ir::Cluster unlimited = ir::with_memory(given, std::numeric_limits<double>::infinity());
  // The closed form has one update.
  const double more_updates = static_cast<double>(updates - 1) * longest_update(graph, given);
  const bool is_held_back = step_seconds > (iteration_time(graph, unlimited).total() + more_updates) * kOrderSlack;
  const ir::Cluster& cluster = is_held_back ? given : unlimited;
  const IdMap<StageId, StageCost> costs = stage_costs(graph, cluster);
  const IterationTime time = iteration_time(graph, cluster);
  const StageId stage = time.limiting;
  const double update = time.update + more_updates;
  const double total = std::max(time.total() + more_updates, std::numeric_limits<double>::min());
  if (step_seconds > total * kOrderSlack) {
    const double share = 1 - total / step_seconds;
    if (graph.stages.size() == 1)
      return {LimitKind::kWork, stage, share,
              text("what it costs to start the step and its passes, ", percent(share),
                   " % of the step: a larger batch, or larger micro-batches, would lift it")};
    if (time.link_seconds > step_seconds - total) return link_limit(graph, time, step_seconds);
    return {LimitKind::kOrder, stage, share,
            text("the order of the schedule, ", percent(share),
                 " % of the step beyond what the plan needs: another policy (--policy auto tries all) or "
                 "smaller micro-batches would lift it")};
  }
  const double slowdown = in_flight(graph, cluster).slowdown();
  if (slowdown > kNoticeable) {
    const double share = time.busiest_seconds * (1 - 1 / slowdown) / total;
    return {LimitKind::kMemory, time.busiest, share,
            text("memory, ", percent(share), " % of the step; too few samples fit in flight to keep ",
                 stage_words(graph, time.busiest), " busy: ", mebibytes(lacking_for_full_speed(graph, cluster, costs)),
                 " more on the fullest device would lift it")};
  }
  const double ends = time.warm_up + time.drain;
  if (time.link_seconds > std::max({time.busiest_seconds, ends, time.reduce, update}))
    return link_limit(graph, time, total);
  if (update > std::max({time.busiest_seconds, ends, time.reduce}))
    return {LimitKind::kUpdate, stage, update / total,
            text("the updates of the weights, ", percent(update / total),
                 " % of the step: a larger batch makes fewer of them, more stages share them, and a lighter optimizer "
                 "passes over less")};
  if (ends > time.busiest_seconds && ends >= time.reduce)
    return {LimitKind::kWarmUpAndDrain, stage, ends / total,
            text("warm-up and drain, ", percent(ends / total), " % of the step; ", stage_words(graph, stage), " runs ",
                 micro_batch_count(graph, stage),
                 micro_batch_count(graph, stage) == 1 ? " micro-batch: " : " micro-batches: ",
                 more_micro_batches(graph, stage), ", or fewer stages one after the other, would lift it")};
  if (time.reduce > time.busiest_seconds)
    return {LimitKind::kReduction, stage, time.reduce / total,
            text("summing gradients over copies, ", percent(time.reduce / total),
                 " % of the step: a larger batch, fewer replicas or a faster link would lift it")};
  return steady_limit(graph, cluster, costs, time.busiest, time.busiest_seconds / total, takes_replicas);
}

}  // namespace graphpipe::cost
