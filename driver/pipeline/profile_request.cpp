// Turns the flags into the request for a planner of profiles.

#include <cmath>

#include "driver/cli/usage.h"
#include "driver/launch/process.h"
#include "driver/pipeline/choose.h"
#include "driver/pipeline/machine.h"
#include "driver/pipeline/pipeline.h"
#include "driver/pipeline/plan_profile.h"
#include "files/profile_formats.h"
#include "scheduler/policies/policies.h"
#include "support/check.h"

namespace graphpipe::driver {
namespace {

constexpr int kMaxDevices = 1 << 16;
constexpr int64_t kMaxSamples = int64_t{1} << 40;

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

// Flags about models mean nothing for a profile without a model; to ignore them would mislead.
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
      {"--order", !options.plan.order.file.empty()},
      {"--drain-every", options.plan.order.drain_every != 0},
      {"--precision", options.given.contains("--precision")},
      {"--contrastive", options.given.contains("--contrastive")},
      {"--accept", options.given.contains("--accept")},
      {"--one-sample", model.one_sample},
  };
  for (const auto& [flag, given] : flags)
    if (given)
      return usage(std::string(flag), "a profile of another project is planned without a model and a cluster file",
                   "leave it out; --devices, --topology, --bandwidth and --memory describe the machine");
  return Ok{};
}

Bytes memory_bytes(double bytes) { return Bytes(static_cast<int64_t>(std::min(std::round(bytes), kMaxDeviceMemory))); }

Result<ir::ImportedProfile> read_profile_file(const Options& options) {
  if (options.plan.profile.empty())
    return usage("--profile-format " + options.foreign.format, "it says what --profile FILE is, and there is none",
                 "add --profile FILE");
  if (!options.model.model.empty())
    return usage(options.model.model, "a profile of another project is planned without a model",
                 "drop the model, or the --profile-format");
  const files::ProfileFormatEntry* format = files::find_profile_format(options.foreign.format);
  GP_CHECK(format != nullptr);  // the command line has checked the name
  return format->read(options.plan.profile);
}

}  // namespace

Result<std::vector<ir::LinkLevel>> parse_topology(const std::string& text) {
  std::vector<ir::LinkLevel> levels;
  int64_t devices = 1;
  for (const std::string_view word : split(text, ",")) {
    const size_t at = std::min(word.find('@'), word.size());
    int count = 0;
    double bandwidth = 0;
    if (!read_number(word.substr(0, at), count) ||
        !read_number(word.substr(std::min(at + 1, word.size())), bandwidth) || count < 1 || count > kMaxDevices ||
        !(bandwidth > 0) || !std::isfinite(bandwidth))
      return usage("--topology " + text, "expected COUNT@BYTES_PER_SECOND for each level, innermost first",
                   "for example --topology 4@10e9,4@1.25e9");
    devices *= count;
    if (devices > kMaxDevices || levels.size() == 8)
      return usage("--topology " + text, graphpipe::text("more than ", kMaxDevices, " devices or 8 levels"),
                   "plan for a smaller machine");
    levels.push_back(
        {.group = static_cast<int>(devices), .latency = Seconds(0), .bandwidth = BytesPerSecond(bandwidth)});
  }
  return levels;
}

Result<std::vector<ir::LinkLevel>> ProfileProblem::take_levels(const std::vector<int>& machines) {
  const ForeignOptions& foreign = options_.foreign;
  const ir::ProfileDefaults& file = profile_.defaults;
  if (!foreign.topology.empty()) {
    if (options_.plan.bandwidth > 0)
      return usage("--bandwidth", "--topology says how much each level of the machine carries",
                   "leave one of the two out");
    GP_TRY(std::vector<ir::LinkLevel> levels, parse_topology(foreign.topology));
    devices_ = levels.back().group;
    if (options_.plan.devices > 0 && options_.plan.devices != devices_)
      return usage("--topology " + foreign.topology,
                   text("it has ", devices_, " devices, --devices says ", options_.plan.devices),
                   "leave one of the two out");
    return levels;
  }
  const double bandwidth = options_.plan.bandwidth > 0 ? options_.plan.bandwidth : file.bandwidth.value_or(1e9);
  if (!(bandwidth > 0) || !std::isfinite(bandwidth))
    return Diagnostic{.code = Code::kMalformedFile,
                      .origin = ModelText(options_.plan.profile),
                      .message = text("its devices exchange ", bandwidth, " bytes per second"),
                      .hint = "say it with --bandwidth, for example --bandwidth 1e9"};
  devices_ = static_cast<int>(options_.plan.devices);
  if (devices_ <= 0) devices_ = machines.empty() ? file.devices.value_or(1) : machines.back();
  if (devices_ < 1 || devices_ > kMaxDevices)
    return Diagnostic{.code = Code::kBadProfile,
                      .origin = ModelText(options_.plan.profile),
                      .message = text("it is of ", devices_, " devices"),
                      .hint = text("say how many with --devices, from 1 to ", kMaxDevices)};
  return std::vector<ir::LinkLevel>{{.group = devices_, .latency = Seconds(0), .bandwidth = BytesPerSecond(bandwidth)}};
}

/// Only files of dnn-partitioning say how long a layer takes on a CPU.
Result<int> ProfileProblem::take_cpus() const {
  const int64_t given = options_.foreign.cpus;
  if (profile_.format == ir::ProfileFormat::kDnnPartitioning)
    return given >= 0 ? static_cast<int>(given) : std::clamp(profile_.defaults.cpus.value_or(0), 0, kMaxDevices);
  if (given > 0)
    return usage("--cpus", "the profile does not say how long a layer takes on a CPU",
                 "leave it out; dnn-partitioning files say it");
  return 0;
}

Status ProfileProblem::take_machine() {
  GP_TRY_VOID(check_machine_flags(options_.plan));
  std::vector<int> machines;
  if (!options_.foreign.machines.empty()) {
    GP_TRY(machines, parse_machines(options_.foreign.machines));
  }
  GP_TRY(std::vector<ir::LinkLevel> levels, take_levels(machines));
  if (!machines.empty() && machines.back() != devices_)
    return usage("--machines", text("they have ", machines.back(), " devices, the plan ", devices_),
                 "make the last number the number of devices");
  GP_TRY(const int cpus, take_cpus());
  double memory = kInfinity;
  if (options_.plan.memory > 0) memory = options_.plan.memory;
  else if (profile_.defaults.memory.value_or(0) > 0) memory = *profile_.defaults.memory;
  request_.limit_memory = std::isfinite(memory);

  cluster_ = ir::equal_devices(devices_ + cpus);
  for (int d = 0; d < devices_ + cpus; ++d) {
    ir::Device& device = cluster_.devices[ir::DeviceId(static_cast<size_t>(d))];
    device.memory = memory_bytes(d < devices_ ? memory : kInfinity);
    for (const int end : machines) device.host += end <= d && d < devices_ ? 1 : 0;
  }
  // The CPUs are reached at the outermost level's bandwidth; each group is a multiple of the group one level below.
  if (cpus > 0)
    levels.push_back({.group = devices_ * ((2 * devices_ + cpus - 1) / devices_),
                      .latency = Seconds(0),
                      .bandwidth = levels.back().bandwidth});
  cluster_.levels = std::move(levels);
  for (int d = 0; d < devices_ + cpus && cpus > 0; ++d) profile_.graph.kind_of_device.push_back(d < devices_ ? 0 : 1);
  if (cpus == 0)
    for (ir::PlanNode& node : profile_.graph.nodes) node.by_kind.clear();
  return Ok{};
}

// Samples of a step and of a micro-batch, and micro-batches of a step: any two flags give the third.
Status ProfileProblem::take_units() {
  partitioner::OriginalOptions& original = request_.original;
  const int64_t given = options_.foreign.micro_batches;
  const bool has_batch = options_.training.batch_given, has_size = options_.plan.micro_batch != "auto";
  if (has_batch) original.batch = options_.training.batch;
  if (has_batch && given > 0 && original.batch % given != 0)
    return usage("--micro-batches " + std::to_string(given),
                 text("a batch of ", original.batch, " samples has no ", given, " equal micro-batches"),
                 "give a number that divides the batch");
  // The profiled work is not divided: it is the micro-batch where no flag says another.
  const int64_t unit = std::max<int64_t>(1, options_.foreign.profile_batch);
  if (has_batch && given == 0 && !has_size && original.batch % unit != 0)
    return usage("--batch " + std::to_string(original.batch),
                 text("the profile is of ", unit, " samples, which are not divided"),
                 text("give a multiple of ", unit, ", or say of how many samples the profile is with --profile-batch"));
  original.micro_batch = has_batch && given == 0 ? unit : partitioner::usual_micro_batch(original.batch);
  if (has_batch && given > 0 && !has_size) original.micro_batch = std::max<int64_t>(1, original.batch / given);
  if (has_size && (!read_number(options_.plan.micro_batch, original.micro_batch) || original.micro_batch < 1 ||
                   original.micro_batch > kMaxSamples))
    return usage("--micro-batch " + options_.plan.micro_batch, text("expected a number from 1 to ", kMaxSamples),
                 "for example --micro-batch 64");
  int64_t micro_batches =
      std::max<int64_t>(1, profile_.defaults.micro_batches.value_or(partitioner::kUsualMicroBatches));
  if (given > 0) micro_batches = given;
  else if (has_batch) micro_batches = std::max<int64_t>(1, original.batch / original.micro_batch);
  if (!has_batch && given > 0 && original.micro_batch <= kMaxSamples / given)
    original.batch = given * original.micro_batch;
  if (!has_batch) original.batch = std::max(original.batch, original.micro_batch);
  if (original.batch < original.micro_batch)
    return usage("--micro-batch " + options_.plan.micro_batch, text("the batch has only ", original.batch, " samples"),
                 "for example --micro-batch 64");
  if (has_batch && given == 0 && original.batch % original.micro_batch != 0)
    return usage("--micro-batch " + options_.plan.micro_batch,
                 text("a batch of ", original.batch, " samples has no equal micro-batches of ", original.micro_batch),
                 "give a number that divides the batch");
  if (has_batch && given > 0 && has_size && original.batch / original.micro_batch != given)
    return usage("--micro-batches",
                 text("a batch of ", original.batch, " has ", original.batch / original.micro_batch,
                      " micro-batches of ", original.micro_batch),
                 "leave one of --batch, --micro-batch and --micro-batches out");
  profile_.graph.batch = Samples(micro_batches);
  return Ok{};
}

Status ProfileProblem::take_request() {
  const ForeignOptions& foreign = options_.foreign;
  const partitioner::PlannerEntry* planner = partitioner::find_planner(options_.plan.planner);
  partitioner::OriginalOptions& original = request_.original;
  if (planner != nullptr && planner->search != nullptr) {
    GP_TRY(original.compat, partitioner::parse_compat(*planner, foreign.compat));
  } else if (!foreign.compat.empty() && foreign.compat != "all") {  // all quirks of no original are none
    return usage("--compat " + foreign.compat, text("the planner ", options_.plan.planner, " reproduces no original"),
                 "leave it out");
  }
  const partitioner::PlannerTraits traits = planner != nullptr ? planner->traits : partitioner::PlannerTraits{};
  if (foreign.non_contiguous && !traits.plans_file_nodes && !traits.asks_others)
    return usage("--non-contiguous", text("the planner ", options_.plan.planner, " knows nothing of it"),
                 "leave it out, or use the planner max-throughput");
  original.non_contiguous = foreign.non_contiguous;
  original.use_fewer = foreign.use_fewer;
  original.charge_traffic = !foreign.no_traffic;
  if (options_.plan.recompute == partitioner::recompute_name(partitioner::Recompute::kAlways))
    return usage("--recompute always", "planners of profiles of other projects decide which layers recompute",
                 "leave it out, or use --recompute never");
  original.recompute = options_.plan.recompute != partitioner::recompute_name(partitioner::Recompute::kNever);
  original.profile_batch = foreign.profile_batch;
  if (foreign.max_degree > 0) original.max_degree = static_cast<int>(foreign.max_degree);
  request_.replication = !foreign.no_replication;
  GP_TRY_VOID(take_units());
  request_.graph = &profile_.graph;
  request_.cluster = &cluster_;
  request_.profile = &profile_;
  // One sample of the plan graph is one unit of the profiled work; only DAPPLE divides it.
  PlanOptions flags = options_.plan;
  if (traits.divides_unit) flags.micro_batch = "auto";
  if (flags.micro_batch != "auto") {
    if (original.micro_batch % original.profile_batch != 0)
      return usage("--micro-batch " + flags.micro_batch,
                   text("the profile is of ", original.profile_batch, " samples, which are not divided"),
                   "give a multiple, or say --profile-batch");
    flags.micro_batch = std::to_string(original.micro_batch / original.profile_batch);
  }
  GP_TRY_VOID(take_flags(flags, request_));
  request_.cancel = &interrupt_flag();
  request_.threads = static_cast<int>(options_.training.threads);
  request_.accelerators_only = !options_.output.empty();
  request_.evaluate = [this](const ir::Assignment& assignment) { return step_in_search(assignment); };
  request_.refusal = [this](const ir::Assignment& assignment) -> std::optional<Diagnostic> {
    const auto found = scheduled({.assignment = assignment});
    if (found) return std::nullopt;
    return found.problems().front();
  };
  request_.measure = [this](const partitioner::PlanCandidate& plan) { return measure(plan); };
  return Ok{};
}

Result<std::unique_ptr<ProfileProblem>> ProfileProblem::read(const Options& options) {
  std::unique_ptr<ProfileProblem> problem(new ProfileProblem(options));
  GP_TRY(problem->profile_, read_profile_file(options));
  GP_TRY_VOID(refuse_flags_of_models(options));
  problem->profile_.graph.execution = execution_for(options.plan.execute, options.plan.policy);
  problem->profile_.graph = scheduler::with_versions_of(options.plan.policy, options.plan.order.vertical_sync,
                                                        std::move(problem->profile_.graph));
  GP_TRY_VOID(problem->take_machine());
  GP_TRY_VOID(problem->take_request());
  problem->folded_ = cost::fold_backward(problem->profile_.graph);
  return problem;
}

}  // namespace graphpipe::driver
