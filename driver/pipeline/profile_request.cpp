// From flags to the request of a planner of layer graphs.

#include <cmath>

#include "driver/cli/usage.h"
#include "driver/launch/process.h"
#include "driver/pipeline/plan_profile.h"
#include "files/dnn_partitioning_profile.h"
#include "files/pipedream_profile.h"
#include "files/piper_profile.h"

namespace graphpipe::driver {
namespace {

constexpr int kMaxDevices = 1 << 16;
constexpr int64_t kUnitsPerStep = 16;
constexpr int64_t kMaxSamples = int64_t{1} << 40;
/// A search without --time-limit ends here: nobody waits longer for a graph of a thousand layers.
constexpr double kUsualSeconds = 40;

Result<std::vector<int>> parse_machines(const std::string& text) {
  std::vector<int> ends;
  for (const std::string_view word : split(text, ",")) {
    int end = 0;
    if (!read_number(word, end) || end <= (ends.empty() ? 0 : ends.back()) || end > kMaxDevices)
      return usage("--machines " + text, "expected the number of devices up to the end of each machine, ascending",
                   "for example --machines 8,16 for two machines of eight");
    ends.push_back(end);
  }
  return ends;
}

Result<cost::LayerMachine> machine_of(const Options& options, const ir::LayerGraph& graph,
                                      const std::vector<int>& machines) {
  const ForeignOptions& foreign = options.foreign;
  cost::LayerMachine machine;
  if (!foreign.topology.empty()) {
    GP_TRY(machine.levels, parse_topology(foreign.topology));
    if (options.plan.devices > 0 && options.plan.devices != machine.devices())
      return usage("--topology " + foreign.topology,
                   text("it has ", machine.devices(), " devices, --devices says ", options.plan.devices),
                   "leave one of the two out");
  } else {
    const double bandwidth = foreign.bandwidth > 0 ? foreign.bandwidth : graph.defaults.bandwidth.value_or(1e9);
    int devices = static_cast<int>(options.plan.devices);
    if (devices <= 0)
      devices = machines.empty() ? std::clamp(graph.defaults.devices.value_or(1), 1, kMaxDevices) : machines.back();
    machine.levels = {{.count = devices, .bandwidth = bandwidth}};
  }
  if (!machines.empty() && machines.back() != machine.devices())
    return usage("--machines", text("they have ", machines.back(), " devices, the plan ", machine.devices()),
                 "make the last number the number of devices");
  for (const auto& level : machine.levels)
    if (!(level.bandwidth > 0) || !std::isfinite(level.bandwidth))
      return usage("--bandwidth", "it is not above zero", "give bytes per second, for example --bandwidth 1e9");
  // Only files of dnn-partitioning say how long a layer takes on a CPU.
  if (graph.source != ir::LayerSource::kDnnPartitioning && foreign.cpus > 0)
    return usage("--cpus", "the profile does not say how long a layer takes on a CPU",
                 "leave it out; dnn-partitioning files say it");
  if (graph.source == ir::LayerSource::kDnnPartitioning)
    machine.cpus = foreign.cpus >= 0 ? static_cast<int>(foreign.cpus)
                                     : std::clamp(graph.defaults.cpus.value_or(0), 0, kMaxDevices);
  if (foreign.memory > 0) machine.memory = foreign.memory;
  else if (graph.defaults.memory.value_or(0) > 0) machine.memory = *graph.defaults.memory;
  return machine;
}

// Flags of models say nothing about a profile that has none; passing over one would mislead.
Status refuse_flags_of_models(const Options& options) {
  const ModelOptions& model = options.model;
  const TrainingOptions& training = options.training;
  const std::pair<std::string_view, bool> flags[] = {
      {"--cluster", !options.plan.cluster.empty()},
      {"--trusted-root", !model.trusted_root.empty()},
      {"--bind", !model.bindings.empty()},
      {"--freeze", !model.freeze.empty()},
      {"--parameters", !model.parameters.empty()},
      {"--batchnorm", !model.batchnorm.empty()},
      {"--dropout", !model.dropout.empty()},
      {"--loss", !training.loss.empty()},
      {"--optimizer", training.optimizer_given},
      {"--seed", training.seed_given},
      {"--group", options.plan.order.group != 0},
      {"--backward", !options.plan.order.backward.empty()},
      {"--vertical-sync", options.plan.order.vertical_sync},
      {"--update", options.plan.order.update != 0},
  };
  for (const auto& [flag, given] : flags)
    if (given)
      return usage(std::string(flag), "a profile of another project is planned without a model and a cluster file",
                   "leave it out; --devices, --topology, --bandwidth and --memory describe the machine");
  return Ok{};
}

// Samples of a step and of a micro-batch, and micro-batches of a step: any two flags give the third.
Status read_units(const Options& options, const ir::LayerGraph& graph, partitioner::LayerPlanRequest& request) {
  const int64_t given = options.foreign.micro_batches;
  const bool has_batch = options.training.batch_given, has_size = options.plan.micro_batch != "auto";
  if (has_batch) request.batch = options.training.batch;
  if (has_batch && given > 0 && request.batch % given != 0)
    return usage("--micro-batches " + std::to_string(given),
                 text("a batch of ", request.batch, " samples has no ", given, " equal micro-batches"),
                 "give a number that divides the batch");
  request.micro_batch = std::min<int64_t>(64, request.batch);
  if (has_batch && given > 0 && !has_size) request.micro_batch = std::max<int64_t>(1, request.batch / given);
  if (has_size && (!read_number(options.plan.micro_batch, request.micro_batch) || request.micro_batch < 1 ||
                   request.micro_batch > kMaxSamples))
    return usage("--micro-batch " + options.plan.micro_batch, text("expected a number from 1 to ", kMaxSamples),
                 "for example --micro-batch 64");
  if (given > 0) request.micro_batches = given;
  else if (has_batch) request.micro_batches = std::max<int64_t>(1, request.batch / request.micro_batch);
  else request.micro_batches = std::clamp<int64_t>(graph.defaults.micro_batches.value_or(kUnitsPerStep), 1, 1 << 20);
  if (!has_batch && given > 0 && request.micro_batch <= kMaxSamples / given)
    request.batch = given * request.micro_batch;
  if (!has_batch) request.batch = std::max(request.batch, request.micro_batch);
  if (request.batch < request.micro_batch)
    return usage("--micro-batch " + options.plan.micro_batch, text("the batch has only ", request.batch, " samples"),
                 "for example --micro-batch 64");
  if (has_batch && given > 0 && has_size && request.batch / request.micro_batch != given)
    return usage("--micro-batches",
                 text("a batch of ", request.batch, " has ", request.batch / request.micro_batch, " micro-batches of ",
                      request.micro_batch),
                 "leave one of --batch, --micro-batch and --micro-batches out");
  return Ok{};
}

}  // namespace

Result<std::vector<cost::LayerMachine::Level>> parse_topology(const std::string& text) {
  std::vector<cost::LayerMachine::Level> levels;
  int64_t devices = 1;
  for (const std::string_view word : split(text, ",")) {
    const size_t at = std::min(word.find('@'), word.size());
    cost::LayerMachine::Level level;
    if (!read_number(word.substr(0, at), level.count) ||
        !read_number(word.substr(std::min(at + 1, word.size())), level.bandwidth) || level.count < 1 ||
        level.count > kMaxDevices || !(level.bandwidth > 0) || !std::isfinite(level.bandwidth))
      return usage("--topology " + text, "expected COUNT@BYTES_PER_SECOND for each level, innermost first",
                   "for example --topology 4@10e9,4@1.25e9");
    devices *= level.count;
    levels.push_back(level);
    if (devices > kMaxDevices || levels.size() > 8)
      return usage("--topology " + text, graphpipe::text("more than ", kMaxDevices, " devices or 8 levels"),
                   "plan for a smaller machine");
  }
  return levels;
}

Result<ir::LayerGraph> read_foreign_profile(const Options& options) {
  if (options.plan.profile.empty())
    return usage("--profile-format " + options.foreign.format, "it says what --profile FILE is, and there is none",
                 "add --profile FILE");
  if (!options.model.model.empty())
    return usage(options.model.model, "a profile of another project is planned without a model",
                 "drop the model, or the --profile-format");
  if (options.foreign.format == "piper") return files::read_piper_profile(options.plan.profile);
  if (options.foreign.format == "dnn-partitioning") return files::read_dnn_partitioning_profile(options.plan.profile);
  return files::read_pipedream_profile(options.plan.profile);
}

Result<partitioner::LayerPlanRequest> layer_request(const Options& options, const ir::LayerGraph& graph) {
  const ForeignOptions& foreign = options.foreign;
  partitioner::LayerPlanRequest request;
  request.graph = &graph;
  GP_TRY_VOID(refuse_flags_of_models(options));
  if (!foreign.machines.empty()) {
    GP_TRY(request.machines, parse_machines(foreign.machines));
  }
  GP_TRY(request.machine, machine_of(options, graph, request.machines));
  if (const auto* row = partitioner::find_layer_planner(options.plan.planner); row != nullptr) {
    GP_TRY(request.compat, partitioner::parse_compat(*row, foreign.compat));
  } else if (!foreign.compat.empty() && foreign.compat != "all") {  // all of none is none
    return usage("--compat " + foreign.compat, text("the planner ", options.plan.planner, " reproduces no original"),
                 "leave it out");
  }
  if (foreign.non_contiguous && options.plan.planner != "max-throughput" && options.plan.planner != "auto")
    return usage("--non-contiguous", text("the planner ", options.plan.planner, " knows nothing of it"),
                 "leave it out, or use the planner max-throughput");
  request.non_contiguous = foreign.non_contiguous;
  request.replication = !foreign.no_replication;
  request.use_fewer = foreign.use_fewer;
  request.charge_traffic = !foreign.no_traffic;
  request.recompute = !foreign.no_recompute;
  request.profile_batch = foreign.profile_batch;
  GP_TRY_VOID(read_units(options, graph, request));
  if (foreign.max_degree > 0) request.max_degree = static_cast<int>(foreign.max_degree);
  request.time_limit = options.plan.time_limit > 0 ? options.plan.time_limit : kUsualSeconds;
  request.cancel = &interrupt_flag();
  return request;
}

}  // namespace graphpipe::driver
