#include "driver/launch/calibration.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "driver/launch/build_folder.h"
#include "driver/launch/digest.h"
#include "driver/launch/failed_run.h"
#include "driver/launch/launch.h"
#include "driver/launch/process.h"
#include "files/cluster.h"
#include "files/text_file.h"
#include "wire/exit_codes.h"
#include "wire/optimizers.h"
#include "wire/version.h"

namespace graphpipe::driver {
namespace {

namespace fs = std::filesystem;

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name"))
      if (const size_t colon = line.find(':'); colon != std::string::npos && colon + 2 < line.size())
        return line.substr(colon + 2);
  return "unknown processor";
}

// LibTorch's path and size: the program that measures is linked to it.
std::string libtorch() {
  std::ifstream file(installed_runtime() + "/share/graphpipe/libtorch.path");
  std::string folder;
  std::getline(file, folder);
  std::error_code error;
  const auto size = fs::file_size(fs::path(folder) / "lib/libtorch_cpu.so", error);
  return error ? folder : text(folder, " of ", size, " bytes");
}

// The program measures its own kernels, so another build must measure again.
std::string program() {
  const Result<std::string> digest = sha256_of_file(calibration_program());
  return text(kCalibrationProgram, " ", wire::kToolVersion, digest.ok() ? " " + digest->substr(0, 16) : std::string());
}

// Empty where the environment names no folder; a relative path is none (XDG Base Directory Specification).
fs::path cache_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && fs::path(cache).is_absolute()) return fs::path(cache) / "graphpipe";
  const char* home = std::getenv("HOME");
  if (home != nullptr && fs::path(home).is_absolute()) return fs::path(home) / ".cache/graphpipe";
  return {};
}

fs::path cache_file(const std::string& key) {
  const fs::path folder = cache_folder();
  return folder.empty() ? folder : folder / ("calibration-" + sha256_of_text(key).substr(0, 16) + ".json");
}

std::optional<ir::Cluster> cached(const fs::path& path, const std::string& key) {
  std::error_code error;
  if (path.empty() || !fs::is_regular_file(path, error)) return std::nullopt;
  const Result<ir::Cluster> cluster = files::read_cluster(path.string());
  if (!cluster.ok() || cluster->devices.size() != 1 || cluster->levels.size() != 1) return std::nullopt;
  if (cluster->devices[ir::DeviceId(0u)].name.raw() != key) return std::nullopt;
  return *cluster;
}

Diagnostics keep(const fs::path& path, const ir::Cluster& cluster) {
  std::error_code error;
  if (!path.empty()) fs::create_directories(path.parent_path(), error);
  const Status written = path.empty() || error ? Status(Diagnostic{.code = Code::kEnvironment})
                                               : files::write_file(path.string(), files::print_cluster(cluster));
  if (written.ok()) return {};
  return {{.code = Code::kEnvironment,
           .severity = Severity::kNote,
           .origin = ModelText(path.empty() ? "calibration" : path.string()),
           .message = "the calibration cannot be kept, and is made each time",
           .hint = "set XDG_CACHE_HOME to a folder that may be written, or GRAPHPIPE_CALIBRATION=default"}};
}

Result<ir::Cluster> measure(const CalibrationRequest& request, const std::string& key) {
  wire::RunOptions run;
  run.launch.threads = request.threads;
  GP_TRY(const RunOutcome outcome, launch_program(kCalibrationProgram, std::min(request.processes, 2), run));
  if (outcome.exit_code == wire::kExitOk)
    if (std::optional<ir::Cluster> cluster = calibration_of_lines(outcome.report, request, key)) return *cluster;
  if (interrupted()) return was_interrupted("the measurement of this machine");
  return with_problems(
      {.code = Code::kEnvironment,
       .origin = ModelText(kCalibrationProgram),
       .message = text("this machine could not be measured: exit code ", outcome.exit_code),
       .hint = "what is named beside this says why; `--cluster default` plans with documented constants"},
      outcome);
}

// Reads these numbers; false where one is missing, negative or not finite.
bool read_numbers(std::istringstream& words, std::initializer_list<double*> numbers) {
  for (double* number : numbers)
    if (!(words >> *number) || !std::isfinite(*number) || *number < 0) return false;
  return true;
}

}  // namespace

std::string calibration_program() {
  const std::string runtime = installed_runtime();
  return runtime.empty() ? "" : runtime + "/bin/" + kCalibrationProgram;
}

std::optional<std::string> calibration_override() {
  const char* value = std::getenv(kCalibrationVariable);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::string calibration_key(const CalibrationRequest& request) {
  return text(processor(), ", ", std::thread::hardware_concurrency(), " cores, LibTorch at ", libtorch(),
              ", measured by ", program(), "; ", std::min(request.processes, 2), " processes of ", request.threads,
              " threads, ", request.optimizer);
}

std::optional<ir::Cluster> calibration_of_lines(const std::string& lines, const CalibrationRequest& request,
                                                const std::string& key) {
  ir::Cluster cluster = ir::equal_devices(1);
  ir::Device& device = cluster.devices[ir::DeviceId(0u)];
  ir::LinkLevel& link = cluster.levels.front();
  device.name = ModelText(key);
  std::set<std::string> found;
  std::istringstream all(lines);
  for (std::string line; std::getline(all, line);) {
    std::istringstream words(line);
    std::string kind, optimizer;
    words >> kind;
    double per_byte = 0;
    ir::RuntimeCosts& costs = cluster.runtime;
    const auto read = [&](std::initializer_list<double*> numbers) {
      if (read_numbers(words, numbers)) found.insert(kind);
    };
    const auto read_rates = [&](ir::SixteenBitRates& rates) {
      read({&rates.products.count, &rates.convolution.count, &rates.attention.count});
    };
    if (kind == "device") {
      read({&device.compute.count, &device.memory_bandwidth.count, &device.launch_overhead.count});
    } else if (kind == "kernels") {
      read({&device.convolution.count, &device.winograd.count, &device.depthwise.count, &device.attention.count,
            &device.functions.count});
    } else if (kind == "bfloat16") {
      read_rates(device.bfloat16);
    } else if (kind == "float16") {
      read_rates(device.float16);
    } else if (kind == "weights") {
      read({&device.weight_bandwidth.count});
    } else if (kind == "link") {
      read({&link.latency.count, &per_byte});
      link.bandwidth = BytesPerSecond(1 / std::max(per_byte, 1e-13));
    } else if (kind == "runtime") {
      read({&costs.action.count, &costs.message.count, &costs.message_byte, &costs.add_byte});
    } else if (kind == "update" && words >> optimizer && optimizer == request.optimizer) {
      if (!read_numbers(words, {&costs.update_tensor.count, &costs.update_byte})) return std::nullopt;
      costs.products_apart = wire::optimizer_named(optimizer).orthogonalises;
    }
  }
  for (const char* kind : {"device", "kernels", "bfloat16", "float16", "weights", "runtime"})
    if (!found.contains(kind)) return std::nullopt;
  const bool positive = device.compute.count > 0 && device.memory_bandwidth.count > 0;
  if (!positive || found.contains("link") != (request.processes > 1)) return std::nullopt;
  return cluster;
}

bool can_calibrate() {
  std::error_code error;
  return fs::exists(calibration_program(), error);
}

std::optional<ir::Cluster> kept_calibration(const CalibrationRequest& request) {
  const std::string key = calibration_key(request);
  return cached(cache_file(key), key);
}

Result<std::optional<Calibration>> calibrate_machine(const CalibrationRequest& request) {
  if (!can_calibrate()) return std::optional<Calibration>();
  if (std::optional<ir::Cluster> known = kept_calibration(request))
    return std::optional<Calibration>({.cluster = std::move(*known), .notes = {}});
  const std::string key = calibration_key(request);
  GP_TRY(ir::Cluster measured, measure(request, key));
  Diagnostics notes = keep(cache_file(key), measured);
  return std::optional<Calibration>({.cluster = std::move(measured), .notes = std::move(notes)});
}

}  // namespace graphpipe::driver
