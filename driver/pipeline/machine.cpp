#include "driver/pipeline/machine.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <thread>

#include "driver/cli/suggestion.h"
#include "driver/cli/usage.h"
#include "driver/launch/digest.h"
#include "driver/report/report.h"
#include "files/cluster.h"
#include "ir/cluster_presets.h"
#include "ir/model_spec.h"

namespace graphpipe::driver {
namespace {

using ir::DeviceId;

constexpr const char* kConstantsName = "default";
constexpr double kMaxBandwidth = 1e24;  // as in a cluster file

/// FLOP/s of products as `--precision` has them, where that is known; else 0.
double reduced_rate(const ir::Device& device, const std::string& precision) {
  if (precision == ir::precision_name(ir::Precision::kBFloat16)) return device.bfloat16.products.count;
  if (precision == ir::precision_name(ir::Precision::kFloat16)) return device.float16.products.count;
  return 0;
}

std::string rates_text(const ir::Cluster& cluster, const std::string& precision) {
  const ir::Device& device = cluster.devices[DeviceId(0u)];
  const ir::LinkLevel& link = cluster.levels.front();
  std::string out = human_count(device.compute.count) + "FLOP/s";
  if (const double reduced = reduced_rate(device, precision); reduced > 0)
    out += fmt::format(" ({}FLOP/s in {})", human_count(reduced), precision);
  out += fmt::format(", {}B/s, {} per operator", human_count(device.memory_bandwidth.count),
                     human_seconds(device.launch_overhead.count));
  // A message from end to end, including the time that both ends are busy with it.
  const ir::RuntimeCosts& costs = cluster.runtime;
  if (cluster.devices.size() > 1)
    out += fmt::format(", messages {} + {}B/s", human_seconds(link.latency.count + 2 * costs.message.count),
                       human_count(1 / (1 / link.bandwidth.count + 2 * costs.message_byte)));
  return out;
}

std::string count_text(size_t count, std::string_view one, std::string_view many) {
  return text(count, " ", count == 1 ? one : many);
}

int count_of(const PlanOptions& options) { return static_cast<int>(std::max<int64_t>(options.devices, 1)); }

// A cluster file with one device need not have any links.
Result<ir::Cluster> cluster_of_file(const std::string& path) {
  GP_TRY(ir::Cluster cluster, files::read_cluster(path));
  if (cluster.levels.empty()) cluster.levels = ir::equal_devices(1).levels;
  return cluster;
}

/// A word that could be a preset's name rather than a path, and is neither. A path with a folder or an ending is meant
/// as a file.
Status check_name(const std::string& name) {
  std::error_code error;
  if (name.find_first_of("/.") != std::string::npos || std::filesystem::exists(name, error)) return Ok{};
  std::vector<std::string> names = {kConstantsName};
  for (const ir::ClusterPreset& preset : ir::cluster_presets()) names.emplace_back(preset.name);
  std::string listed;
  for (const std::string& known : names) listed += (listed.empty() ? "" : ", ") + known;
  return usage("--cluster " + name, "there is no preset and no file of this name" + suggestion(name, names),
               "name a cluster file, or one of " + listed);
}

Result<Machine> machine_of_file(const PlanOptions& options) {
  GP_TRY_VOID(check_name(options.cluster));
  Machine machine{.source = MachineSource::kFile};
  GP_TRY(machine.cluster, cluster_of_file(options.cluster));
  const auto found = static_cast<int64_t>(machine.cluster.devices.size());
  if (options.devices > found)
    return usage(text("--devices ", options.devices), text("the cluster file has ", found, " devices"),
                 "ask for as many or fewer, or leave --devices out");
  if (options.devices > 0) machine.cluster = ir::first_devices(std::move(machine.cluster), count_of(options));
  machine.sentence = text(count_text(machine.cluster.devices.size(), "device", "devices"), " of ",
                          Terminal::encode_text(options.cluster).str());
  return machine;
}

Machine machine_of_preset(const ir::ClusterPreset& preset, const PlanOptions& options) {
  const int count = options.devices > 0 ? count_of(options) : preset.devices_of_host;
  Machine machine{.cluster = ir::preset_cluster(preset, count), .source = MachineSource::kPreset};
  machine.sentence = text(count_text(machine.cluster.devices.size(), "device", "devices"), " of ", preset.name, " (",
                          preset.description, ")");
  return machine;
}

/// Processors without instructions for a 16-bit type take many times as long as in float32, where a user expects less.
void note_slow_precision(Machine& machine, const std::string& precision) {
  const ir::Device& device = machine.cluster.devices[DeviceId(0u)];
  const double reduced = reduced_rate(device, precision);
  if (reduced <= 0 || reduced >= device.compute.count) return;
  machine.notes.push_back(
      {.code = Code::kEnvironment,
       .severity = Severity::kNote,
       .origin = ModelText("--precision " + precision),
       .message = fmt::format("matrix products reach {}FLOP/s in {} on this machine, {}FLOP/s in float32",
                              human_count(reduced), precision, human_count(device.compute.count)),
       .hint = "leave --precision out where steps are to be short on this machine"});
}

Machine machine_of_constants(const Options& options, std::string_view why) {
  Machine machine{.cluster = ir::equal_devices(count_of(options.plan)), .source = MachineSource::kConstants};
  machine.sentence = text(count_text(machine.cluster.devices.size(), "equal device", "equal devices"), " (", why, ": ",
                          rates_text(machine.cluster, options.training.precision), ")");
  return machine;
}

/// 0 where the system does not say.
double memory_bytes_here() {
  const auto pages = static_cast<double>(sysconf(_SC_PHYS_PAGES)), page = static_cast<double>(sysconf(_SC_PAGESIZE));
  return pages > 0 && page > 0 ? pages * page : 0;
}

int cores_here() { return static_cast<int>(std::max(1u, std::thread::hardware_concurrency())); }

/// The processes of this machine: each is the calibration's device, with its share of the memory.
ir::Cluster processes(const ir::Cluster& calibration, int count) {
  const double memory = memory_bytes_here();
  ir::Cluster cluster;
  for (int i = 0; i < count; ++i) {
    ir::Device device = calibration.devices[DeviceId(0u)];
    device.name = ModelText(text("process", i));
    device.host = 0;
    if (memory > 0) device.memory = Bytes(std::max<int64_t>(1, static_cast<int64_t>(memory / count)));
    cluster.devices.push_back(std::move(device));
  }
  cluster.levels = {calibration.levels.front()};
  cluster.levels.front().group = count;
  cluster.runtime = calibration.runtime;
  return cluster;
}

Machine this_machine(const ir::Cluster& calibration, const Options& options, std::string_view how) {
  Machine machine{.cluster = processes(calibration, count_of(options.plan)), .source = MachineSource::kCalibrated};
  machine.cores = cores_here();
  const int64_t used = static_cast<int64_t>(machine.cluster.devices.size()) * options.training.threads;
  machine.sentence = count_text(machine.cluster.devices.size(), "process", "processes") + " of this machine";
  if (used > machine.cores) machine.sentence += text(" on ", count_text(machine.cores, "core", "cores"));
  if (used < machine.cores)
    machine.sentence += text(" on ", used, " of its ", machine.cores, " cores, more with --devices or --threads");
  machine.sentence += text(" (", how, ": ", rates_text(machine.cluster, options.training.precision), ")");
  note_slow_precision(machine, options.training.precision);
  return machine;
}

Result<Machine> machine_of_variable(const std::string& path, const Options& options) {
  GP_TRY(const ir::Cluster cluster, cluster_of_file(path));
  return this_machine(cluster, options, "as " + Terminal::encode_text(path).str() + " has it");
}

}  // namespace

std::string_view source_name(MachineSource source) {
  switch (source) {
    case MachineSource::kFile:
      return "file";
    case MachineSource::kPreset:
      return "preset";
    case MachineSource::kCalibrated:
      return "calibrated";
    case MachineSource::kProfile:
      return "profile";
    case MachineSource::kPlan:
      return "plan";
    default:
      return "constants";
  }
}

Result<Machine> find_machine(const Options& options) {
  const std::string& name = options.plan.cluster;
  if (name == kConstantsName) return machine_of_constants(options, "constants");
  if (const ir::ClusterPreset* preset = ir::find_cluster_preset(name)) return machine_of_preset(*preset, options.plan);
  if (!name.empty()) return machine_of_file(options.plan);
  if (!options.plan.profile.empty()) {
    Machine machine = machine_of_constants(options, "constants");
    machine.source = MachineSource::kProfile;
    machine.sentence = text(count_text(machine.cluster.devices.size(), "process", "processes"), ", as measured in ",
                            Terminal::encode_text(options.plan.profile).str());
    return machine;
  }
  if (const std::optional<std::string> variable = calibration_override()) {
    if (*variable != kConstantsName) return machine_of_variable(*variable, options);
    return machine_of_constants(options, text("constants, as ", kCalibrationVariable, " says"));
  }
  GP_TRY(std::optional<Calibration> calibration, calibrate_machine(*calibration_request(options)));
  if (!calibration) return machine_of_constants(options, "constants: no runtime is installed to calibrate with");
  Machine machine = this_machine(calibration->cluster, options, "calibrated");
  std::ranges::move(calibration->notes, std::back_inserter(machine.notes));
  return machine;
}

Status check_machine_flags(const PlanOptions& options) {
  if (options.memory > 0 && (options.memory < 1 || options.memory > kMaxDeviceMemory))
    return usage("--memory", text("a device has from 1 to ", kMaxDeviceMemory, " bytes"),
                 "leave it out for what it has");
  if (options.bandwidth > kMaxBandwidth)
    return usage("--bandwidth", text("a link carries at most ", kMaxBandwidth, " bytes per second"),
                 "leave it out for what it carries");
  return Ok{};
}

ir::Cluster as_asked(ir::Cluster cluster, const PlanOptions& options) {
  if (options.memory > 0)
    for (ir::Device& device : cluster.devices) device.memory = Bytes(std::llround(options.memory));
  if (options.bandwidth <= 0) return cluster;
  if (cluster.levels.empty()) cluster.levels = ir::equal_devices(1).levels;  // of a plan file with one device
  cluster.levels.back().bandwidth = BytesPerSecond(options.bandwidth);
  return cluster;
}

std::string asked_words(const PlanOptions& options) {
  std::string words;
  if (options.memory > 0) words += ", with " + human_bytes(options.memory) + " each";
  if (options.bandwidth > 0) words += ", the outermost links with " + human_count(options.bandwidth) + "B/s";
  return words;
}

Machine machine_of_plan(const ir::Cluster& cluster) {
  return {.cluster = cluster,
          .source = MachineSource::kPlan,
          .sentence = text(count_text(cluster.devices.size(), "device", "devices"), ", as the plan file has them")};
}

std::optional<CalibrationRequest> calibration_request(const Options& options) {
  if (!options.plan.cluster.empty() || !options.plan.profile.empty()) return std::nullopt;
  return CalibrationRequest{.processes = std::min(count_of(options.plan), 2),
                            .threads = static_cast<int>(options.training.threads),
                            .optimizer = options.training.optimizer};
}

Result<LocalPrices> local_prices(const CalibrationRequest& request) {
  const std::string file = calibration_override().value_or("");
  if (file == kConstantsName || (file.empty() && !can_calibrate())) return LocalPrices{.digest = kConstantsName};
  LocalPrices prices;
  std::string told = text(memory_bytes_here(), " ", cores_here(), " ");
  if (!file.empty()) {
    GP_TRY(const std::string digest, sha256_of_file(file));
    told += digest;
  } else if (const std::optional<ir::Cluster> kept = kept_calibration(request)) {
    told += files::print_cluster(*kept);
  } else {
    told += calibration_key(request);
    prices.known = false;
  }
  prices.digest = sha256_of_text(told);
  return prices;
}

}  // namespace graphpipe::driver
