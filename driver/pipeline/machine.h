#pragma once
// Which machines the flags mean: a cluster file, a preset, documented constants, or this machine as it was measured.

#include <optional>
#include <string>

#include "driver/cli/options.h"
#include "driver/launch/calibration.h"
#include "ir/cluster.h"
#include "support/result.h"

namespace graphpipe::driver {

enum class MachineSource : uint8_t { kFile, kPreset, kConstants, kCalibrated, kProfile, kPlan };
/// "file", "preset", "constants", "calibrated", "profile", "plan".
std::string_view source_name(MachineSource source);

struct Machine {
  ir::Cluster cluster;
  MachineSource source = MachineSource::kConstants;
  /// What the devices are, for people: "4 processes of this machine (calibrated: ...)".
  std::string sentence;
  /// Of this machine, where the devices are its processes; else 0. The cluster's devices are priced as if each had as
  /// many as it has threads.
  int cores = 0;
  Diagnostics notes;
};

/// `--cluster FILE|NAME` and `--devices N`; without a cluster this machine, calibrated (driver/launch/calibration.h).
/// The environment's GRAPHPIPE_CALIBRATION is a cluster file whose first device and innermost link stand for this
/// machine, or "default" for the documented constants. With a profile nothing is measured: it has what counts.
/// Errors: those of reading a cluster and of measuring; kUsage for more devices than a cluster file has, and for a name
/// that is neither a preset's nor a file's.
Result<Machine> find_machine(const Options& options);
/// The most bytes of a device that a flag or the profile of another project may say.
inline constexpr double kMaxDeviceMemory = 1e15;
/// What `--memory` and `--bandwidth` may say. Errors: kUsage.
Status check_machine_flags(const PlanOptions& options);
/// The cluster with what they say. Needs: check_machine_flags() has passed.
ir::Cluster as_asked(ir::Cluster cluster, const PlanOptions& options);
/// ", 8 GB each as --memory says"; nothing where they say nothing.
std::string asked_words(const PlanOptions& options);
/// The machines of a plan file.
Machine machine_of_plan(const ir::Cluster& cluster);

/// The calibration of this machine that prices come from; nothing where a cluster or a profile has them.
std::optional<CalibrationRequest> calibration_request(const Options& options);

/// What tells plans at this machine's prices from plans at those of another machine or calibration.
struct LocalPrices {
  /// Of the calibration, or of what GRAPHPIPE_CALIBRATION puts in its place; of the machine's memory and cores.
  std::string digest;
  /// False where the calibration has still to be measured: the digest says only for what.
  bool known = true;
};
/// Measures nothing. Errors: those of reading the file of GRAPHPIPE_CALIBRATION.
Result<LocalPrices> local_prices(const CalibrationRequest& request);

}  // namespace graphpipe::driver
