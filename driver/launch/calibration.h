#pragma once
// What this machine does per second: measured once by graphpipe-calibrate of the installed runtime, then taken from a
// cache of the user ($XDG_CACHE_HOME/graphpipe, or ~/.cache/graphpipe).

#include <optional>
#include <string>

#include "ir/cluster.h"
#include "ir/plan.h"
#include "wire/optimizers.h"

namespace graphpipe::driver {

/// For what programs: their numbers differ.
struct CalibrationRequest {
  /// Processes that work side by side; two stand for more.
  int processes = 1;
  int threads = 1;
  std::string optimizer = wire::kDefaultOptimizer;

  auto operator<=>(const CalibrationRequest&) const = default;
};

struct Calibration {
  /// One device, and one level of links for any number of it (of one process: the documented constants). Its memory is
  /// not measured.
  ir::Cluster cluster;
  /// Where it could not be kept, why.
  Diagnostics notes;
};

/// The calibration of this machine, measured where no file of the cache is one: a file that is damaged, or was made for
/// another machine, LibTorch or version, is measured again. Nothing where no runtime is installed.
/// Errors: kEnvironment where the measurement fails, kInterrupted.
Result<std::optional<Calibration>> calibrate_machine(const CalibrationRequest& request);

/// Whether a runtime is installed to measure with.
bool can_calibrate();

/// The calibration that the cache has; nothing where it has to be measured.
std::optional<ir::Cluster> kept_calibration(const CalibrationRequest& request);

/// The installed runtime's program that measures.
inline constexpr const char* kCalibrationProgram = "graphpipe-calibrate";

/// The path of graphpipe-calibrate, where there may be nothing; empty where no runtime is installed.
std::string calibration_program();

/// The variable of the environment that says what this machine does, so that nothing is measured.
inline constexpr const char* kCalibrationVariable = "GRAPHPIPE_CALIBRATION";

/// The variable's value: a cluster file, or "default" for the documented constants. Nothing where it is not set, or is
/// empty, as a script leaves it that passes on what it may not have.
std::optional<std::string> calibration_override();

/// What a cached calibration is for, as it names its device: processor, cores, LibTorch, version, and the request.
std::string calibration_key(const CalibrationRequest& request);

/// The lines that graphpipe-calibrate prints (runtime/profiling/calibrate.h), with `key` as the name of the device.
/// Nothing where they are not its lines.
std::optional<ir::Cluster> calibration_of_lines(const std::string& lines, const CalibrationRequest& request,
                                                const std::string& key);

}  // namespace graphpipe::driver
