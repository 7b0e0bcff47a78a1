#include "driver/report/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "cost/limits.h"
#include "cost/op_prices.h"
#include "driver/pipeline/stage_modules.h"
#include "driver/report/device_bytes.h"
#include "driver/report/report.h"
#include "ir/device_names.h"
#include "wire/optimizers.h"

namespace graphpipe::driver {
namespace {

std::string joined(const std::vector<ir::StageId>& stages) {
  std::string out;
  for (const ir::StageId stage : stages) out += (out.empty() ? "s" : " s") + std::to_string(stage.index());
  return out.empty() ? "-" : out;
}

/// The modules that lie in this stage only, as many as fit into a line; its first node if there are none.
std::string contents_of(const Pipeline& pipeline, ir::StageId id) {
  constexpr size_t kMaxCharacters = 40;
  const std::vector<std::string> modules = modules_in(pipeline, id);
  if (modules.empty()) {
    const ModelText& first = pipeline.priced.nodes[pipeline.stages.stages[id].nodes.front()].label;
    return Terminal::encode(first).str().substr(0, kMaxCharacters);
  }
  std::string out;
  for (size_t i = 0; i < modules.size(); ++i) {
    const std::string name = Terminal::encode_text(modules[i]).str();
    if (i > 0 && out.size() + name.size() > kMaxCharacters) return out + text(", and ", modules.size() - i, " more");
    out += (out.empty() ? "" : ", ") + name;
  }
  return out;
}

std::string stage_table(const Pipeline& pipeline) {
  const bool named = std::ranges::any_of(pipeline.modules, [](const auto& modules) { return !modules.empty(); });
  std::vector<std::vector<std::string>> rows{{"stage", "after", "devices", "nodes", "micro-batch", "k",
                                              "per micro-batch", "weights",
                                              named ? "modules, or first node" : "first node"}};
  for (const ir::StageId id : pipeline.stages.stage_ids()) {
    const ir::Stage& stage = pipeline.stages.stages[id];
    rows.push_back({"s" + std::to_string(id.index()), joined(pipeline.stages.predecessors(id)),
                    devices_text(stage.choice), std::to_string(stage.nodes.size()),
                    std::to_string(stage.choice.micro_batch.count), std::to_string(stage.choice.k),
                    human_seconds(item_seconds(stage)), human_bytes(static_cast<double>(stage.weight_bytes.count)),
                    contents_of(pipeline, id)});
  }
  return table(rows);
}

// Of a stage in a step, at most.
int64_t updates_of(const Pipeline& pipeline) {
  std::map<ir::ReplicaKey, int64_t> updates;
  int64_t max_updates = 1;
  for (const ir::Program& program : pipeline.built.schedule.programs)
    for (const ir::Action& action : program.actions)
      if (action.op == ir::ActionOp::kStep) max_updates = std::max(max_updates, ++updates[ir::replica_key(action)]);
  return std::max<int64_t>(1, max_updates / std::max<int64_t>(1, pipeline.built.batches));
}

/// "s0, s2": the stages whose replicas divide the optimizer's state.
std::string stages_with_divided_state(const Pipeline& pipeline) {
  std::string names;
  for (const ir::StageId stage : pipeline.stages.stage_ids())
    if (pipeline.stages.stages[stage].choice.divides_optimizer_state())
      names += text(names.empty() ? "s" : ", s", stage);
  return names;
}

/// A lower bound of the seconds of a step if all processes share the cores of this machine: all their work, spread
/// evenly over the cores. Zero if the devices are not processes of this machine.
double step_on_cores(const Pipeline& pipeline) {
  if (pipeline.machine.cores == 0) return 0;
  const scheduler::Schedule& schedule = pipeline.built.schedule;
  const scheduler::Timeline& timeline = pipeline.built.timeline;
  double ticks = 0;
  for (size_t program = 0; program < timeline.spans.size(); ++program)
    for (size_t i = 0; i < timeline.spans[program].size(); ++i)
      if (const scheduler::Span& span = timeline.spans[program][i];
          wire::is_compute(schedule.programs[program].actions[i].op))
        ticks += static_cast<double>(span.end.count - span.start.count);
  const auto batches = static_cast<double>(pipeline.built.batches);
  return ticks / scheduler::kTicksPerSecond / batches * pipeline.plan.threads / pipeline.machine.cores;
}

int64_t peak_bytes(const scheduler::BuiltSchedule& built) {
  int64_t peak = 0;
  for (const scheduler::DeviceMemory& memory : built.memory) peak = std::max(peak, memory.peak.count);
  return peak;
}

std::string recomputation_text(const Pipeline& pipeline) {
  std::string stages;
  for (const ir::StageId id : pipeline.stages.stage_ids())
    if (pipeline.stages.stages[id].choice.recompute) stages += text(stages.empty() ? "s" : ", s", id.index());
  return stages.empty() ? "" : text("activations are computed again in the backwards of ", stages, "\n");
}

/// The best plan of several stages that was found, where the plan is plain data parallelism.
std::string multi_stage_text(const Pipeline& pipeline) {
  if (!pipeline.multi_stage) return "";
  const MultiStageAlternative& best = *pipeline.multi_stage;
  const double step = pipeline.built.step_seconds();
  return fmt::format(
      "data parallelism is fastest; the best plan of several stages found ({} stages, micro-batch {}) takes {}, {:.2f} "
      "times as long, and {} on its fullest device (this one {})\n",
      best.stages, best.micro_batch, human_seconds(best.step_seconds), best.step_seconds / step,
      human_bytes(static_cast<double>(best.peak_bytes)), human_bytes(static_cast<double>(peak_bytes(pipeline.built))));
}

std::string faster_policy_text(const Pipeline& pipeline) {
  if (!pipeline.faster_policy) return "";
  const PolicyAlternative& best = *pipeline.faster_policy;
  return fmt::format(
      "policy {} would order these stages in {}, {:.2f} times as long, with {} on the fullest device (this one {}): "
      "--policy auto plans for all policies\n",
      best.policy, human_seconds(best.step_seconds), best.step_seconds / pipeline.built.step_seconds(),
      human_bytes(static_cast<double>(best.peak_bytes)), human_bytes(static_cast<double>(peak_bytes(pipeline.built))));
}

JsonObject faster_policy_json(const PolicyAlternative& best) {
  JsonObject object;
  object.add("policy", best.policy).add("simulated_step", best.step_seconds);
  return object.add("peak_bytes", best.peak_bytes);
}

JsonObject multi_stage_json(const MultiStageAlternative& best) {
  JsonObject object;
  object.add("stages", best.stages).add("micro_batch", best.micro_batch);
  return object.add("simulated_step", best.step_seconds).add("peak_bytes", best.peak_bytes);
}

JsonObject rates_json(const ir::Device& device, ir::DType type) {
  JsonObject object;
  object.add("flops_per_second", cost::flops_per_second(device, ops::Kernel::kProduct, type).count);
  object.add("convolution_flops_per_second", cost::flops_per_second(device, ops::Kernel::kConvolution, type).count);
  return object.add("attention_flops_per_second", cost::flops_per_second(device, ops::Kernel::kAttention, type).count);
}

JsonObject machine_json(const Pipeline& pipeline) {
  const ir::Cluster& cluster = pipeline.plan.cluster;
  const ir::Device& device = cluster.devices[ir::DeviceId(0u)];
  JsonObject object;
  object.add("source", source_name(pipeline.machine.source)).add("description", pipeline.machine.sentence);
  object.add("devices", cluster.devices.size()).add("cores", pipeline.machine.cores);
  object.add("flops_per_second", device.compute.count);
  object.add("convolution_flops_per_second", cost::flops_per_second(device, ops::Kernel::kConvolution).count);
  object.add("winograd_flops_per_second", cost::flops_per_second(device, ops::Kernel::kWinograd).count);
  object.add("depthwise_flops_per_second", cost::flops_per_second(device, ops::Kernel::kDepthwise).count);
  object.add("attention_flops_per_second", cost::flops_per_second(device, ops::Kernel::kAttention).count);
  object.add("function_flops_per_second", cost::flops_per_second(device, ops::Kernel::kFunction).count);
  object.add("bfloat16", rates_json(device, ir::DType::kBFloat16));
  object.add("float16", rates_json(device, ir::DType::kFloat16));
  object.add("memory_bytes_per_second", device.memory_bandwidth.count);
  object.add("weight_bytes_per_second", cost::weight_bandwidth(device).count);
  object.add("launch_overhead_seconds", device.launch_overhead.count).add("memory_bytes", device.memory.count);
  object.add("latency_seconds", cluster.levels.front().latency.count);
  return object.add("bytes_per_second", cluster.levels.front().bandwidth.count);
}

/// The bytes of each program's device, in words.
std::string bytes_of_devices(const Pipeline& pipeline, const std::vector<Bytes>& bytes) {
  std::vector<DeviceBytes> each;
  for (size_t i = 0; i < bytes.size(); ++i)
    each.push_back({.device = pipeline.built.schedule.programs[i].device.index(), .bytes = bytes[i]});
  return device_bytes_text(std::move(each));
}

double gap(double value, double bound) { return bound > 0 ? value / bound - 1 : 0; }

}  // namespace

std::vector<int64_t> devices_of(const ir::StageChoice& choice) {
  std::vector<int64_t> devices;
  for (const ir::DeviceId first : choice.devices)
    for (int i = 0; i < choice.degree; ++i) devices.push_back(static_cast<int64_t>(first.index()) + i);
  return devices;
}

std::string names_of_devices(const ir::StageChoice& choice) {
  const std::vector<int64_t> devices = devices_of(choice);
  std::vector<size_t> numbers(devices.begin(), devices.end());
  std::ranges::sort(numbers);
  return ir::device_names(numbers);
}

std::string devices_text(const ir::StageChoice& choice) {
  constexpr size_t kMaxSingle = 8;
  const std::vector<int64_t> devices = devices_of(choice);
  if (devices.size() > kMaxSingle) return names_of_devices(choice);
  std::string out;
  for (const int64_t device : devices) out += (out.empty() ? "d" : " d") + std::to_string(device);
  return out;
}

double item_seconds(const ir::Stage& stage) {
  const auto replicas = static_cast<int64_t>(stage.choice.devices.size());
  const bool split = stage.choice.mode == ir::ReplicaMode::kSplit;
  const Samples samples((stage.choice.micro_batch.count + (split ? replicas - 1 : 0)) / (split ? replicas : 1));
  return stage.total(samples);
}

std::string steady_line(const scheduler::SteadyState& steady) {
  return fmt::format("where batches follow each other without draining: {} per batch, {} per update\n",
                     human_seconds(steady.step_seconds), human_seconds(steady.update_seconds));
}

cost::Limit limit_of(const Pipeline& pipeline) {
  const scheduler::Policy* policy = scheduler::find_policy(pipeline.plan.policy);
  const bool takes_replicas = policy == nullptr || policy->shape == ir::StageShape::kAny;
  return cost::limit_of(pipeline.stages, pipeline.plan.cluster, pipeline.built.step_seconds(), updates_of(pipeline),
                        takes_replicas);
}

std::string policy_words(const Pipeline& pipeline) {
  const std::string &asked = pipeline.plan.policy, &taken = pipeline.built.schedule.policy;
  return asked == "auto" && taken != asked ? text(asked, " (", taken, ")") : asked;
}

// Its schedule may be synchronous all the same, where it has one update between two drains.
bool is_of_asynchronous_policy(const Pipeline& pipeline) {
  const scheduler::Policy* policy = scheduler::find_policy(pipeline.plan.policy);
  return policy != nullptr && policy->asynchronous;
}

std::string why_state_stays_whole(const Pipeline& pipeline) {
  const std::string& optimizer = pipeline.plan.spec.optimizer;
  if (!wire::optimizer_named(optimizer).updates_apart)
    return text("optimizer ", optimizer, " updates an element from others too");
  if (ir::is_asynchronous(pipeline.built.schedule))
    return text("policy ", pipeline.plan.policy, " updates weights inside of the step");
  return {};
}

std::string plan_text(const Pipeline& pipeline) {
  std::string out = stage_table(pipeline);
  if (!pipeline.machine.sentence.empty()) out += "devices: " + pipeline.machine.sentence + "\n";
  const double step = pipeline.built.step_seconds();
  const auto metrics = scheduler::metrics_of(pipeline.built.schedule, pipeline.built.timeline);
  out += fmt::format("planner {}, policy {}", pipeline.plan.planner, policy_words(pipeline));
  if (pipeline.plan.execution == ir::Execution::kChain) out += ", executed as a chain";
  if (pipeline.search_seconds > 0) out += ", searched " + human_seconds(pipeline.search_seconds);
  out += pipeline.complete ? "\n" : " (ended early)\n";
  out += fmt::format("simulated step {}, idle {:.1f} %", human_seconds(step), 100 * metrics.bubble_of_makespan);
  if (pipeline.built.batches > 1) out += fmt::format("; the pipeline drains every {} steps", pipeline.built.batches);
  else if (is_of_asynchronous_policy(pipeline)) out += "; the pipeline drains after every step";
  out += "\n";
  if (pipeline.steady) out += steady_line(*pipeline.steady);
  if (const double shared = step_on_cores(pipeline); shared > step)
    out +=
        fmt::format("simulated as if every process had cores of its own; on the {} of this machine no less than {}\n",
                    pipeline.machine.cores, human_seconds(shared));
  out += fmt::format("lower bound: {} for this plan (gap {:.1f} %), {} for any plan on these devices (gap {:.1f} %)\n",
                     human_seconds(pipeline.step_bound), 100 * gap(step, pipeline.step_bound),
                     human_seconds(pipeline.model_bound), 100 * gap(step, pipeline.model_bound));
  out += multi_stage_text(pipeline);
  out += faster_policy_text(pipeline);
  out += "limited by " + limit_of(pipeline).sentence + "\n";
  std::vector<Bytes> peaks;
  for (const scheduler::DeviceMemory& memory : pipeline.built.memory) peaks.push_back(memory.peak);
  out += "peak memory: " + bytes_of_devices(pipeline, peaks) + "\n";
  if (!pipeline.arenas.empty())
    out += "tensors of a step, at fixed places: " + bytes_of_devices(pipeline, pipeline.arenas) + "\n";
  out += recomputation_text(pipeline);
  if (const std::string stages = stages_with_divided_state(pipeline); !stages.empty()) {
    const std::string why = why_state_stays_whole(pipeline);
    const std::string refused = why.empty() ? "" : text("; `generate` refuses this: ", why);
    out += text("replicas divide the optimizer's state: ", stages, refused, "\n");
  }
  return out;
}

std::vector<int64_t> counts(const std::vector<Bytes>& bytes) {
  std::vector<int64_t> counts;
  for (const Bytes each : bytes) counts.push_back(each.count);
  return counts;
}

JsonObject plan_json(const Pipeline& pipeline) {
  std::vector<JsonObject> stages;
  for (const ir::StageId id : pipeline.stages.stage_ids()) {
    const ir::Stage& stage = pipeline.stages.stages[id];
    std::vector<int64_t> nodes, devices, predecessors;
    for (const ir::PlanNodeId node : stage.nodes) nodes.push_back(static_cast<int64_t>(node.index()));
    for (const ir::DeviceId device : stage.choice.devices) devices.push_back(static_cast<int64_t>(device.index()));
    for (const ir::StageId before : pipeline.stages.predecessors(id))
      predecessors.push_back(static_cast<int64_t>(before.index()));
    JsonObject object;
    object.add("nodes", nodes).add("devices", devices).add("predecessors", predecessors);
    object.add("modules", modules_in(pipeline, id));
    object.add("micro_batch", stage.choice.micro_batch.count).add("k", stage.choice.k);
    object.add("recompute", stage.choice.recompute).add("shard_optimizer_state", stage.choice.shard_optimizer_state);
    object.add("mixes_samples", stage.scope != ir::SampleScope::kEach);
    stages.push_back(object.add("sample_scope", std::string(ir::sample_scope_name(stage.scope))));
  }
  std::vector<int64_t> peaks;
  for (const scheduler::DeviceMemory& memory : pipeline.built.memory) peaks.push_back(memory.peak.count);
  const auto metrics = scheduler::metrics_of(pipeline.built.schedule, pipeline.built.timeline);
  JsonObject object;
  object.add("planner", pipeline.plan.planner).add("policy", pipeline.plan.policy);
  object.add("ordered_by", pipeline.built.schedule.policy);
  object.add("execute", std::string(ir::execution_name(pipeline.plan.execution))).add("stages", stages);
  object.add("batch", pipeline.plan.batch.count).add("simulated_step", pipeline.built.step_seconds());
  if (is_of_asynchronous_policy(pipeline)) object.add("drain_every", pipeline.plan.drain_every);
  if (pipeline.steady)
    object.add("steady_step", pipeline.steady->step_seconds).add("steady_update", pipeline.steady->update_seconds);
  object.add("step_bound", pipeline.step_bound).add("bound", pipeline.model_bound).add("unit", "s");
  object.add("objective", pipeline.built.step_seconds())
      .add("gap", gap(pipeline.built.step_seconds(), pipeline.model_bound));
  if (!pipeline.machine.sentence.empty()) object.add("machine", machine_json(pipeline));
  if (const double shared = step_on_cores(pipeline); shared > pipeline.built.step_seconds())
    object.add("step_on_cores", shared);
  if (pipeline.multi_stage) object.add("best_stage_graph", multi_stage_json(*pipeline.multi_stage));
  if (pipeline.faster_policy) object.add("faster_policy", faster_policy_json(*pipeline.faster_policy));
  object.add("idle_fraction", metrics.bubble_of_makespan).add("peak_bytes", peaks);
  if (!pipeline.arenas.empty()) object.add("arena_bytes", counts(pipeline.arenas));
  const cost::Limit limit = limit_of(pipeline);
  object.add("limit", limit.sentence).add("limit_kind", std::string(cost::name_of(limit.kind)));
  object.add("search_seconds", pipeline.search_seconds);
  // That of a plan which is not written, and whose model's weights are not read for it, would be of no file.
  if (!pipeline.plan.model_digest.empty()) object.add("plan_digest", plan_digest(pipeline.plan));
  return object;
}

}  // namespace graphpipe::driver
