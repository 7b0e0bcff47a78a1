#pragma once
// What a resumed run must have in common with the one that wrote a checkpoint, and where it resumes.

#include <functional>
#include <string>
#include <vector>

#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/device/device.h"
#include "runtime/executor/stage_state.h"
#include "wire/run_options.h"

namespace graphpipe::runtime {

/// What a checkpoint records about this run, except for the step and the files. Reads the data files. `folder` is the
/// generated folder. Throws RunError.
wire::CheckpointRecord record_of_run(const PlanTable& plan, const wire::RunOptions& options, const std::string& folder);

/// A digest of the folder's data files: their names, sizes, and first and last bytes, so that large data need not be
/// read in full. 64 zeros if the folder's name is empty.
std::string data_digest(const std::string& folder);
/// The same for data that a feeder names.
std::string fed_data_digest(const std::string& name);

/// The last intact checkpoint of the options' --resume that fits the run; later, damaged ones are reported on stderr.
/// Absent if the same folder takes the run's checkpoints and has none yet: the run then starts from the beginning.
/// Throws RunError: kUsage if the folder has no checkpoint, or one of another model, optimizer, seed or of other data,
/// or one past the last step; kMalformedFile if none is intact.
std::optional<FoundCheckpoint> find_resume(const wire::RunOptions& options, const wire::CheckpointRecord& run);

/// Restores the states from the checkpoint in this folder. Returns its step. Throws RunError (kMalformedFile).
int64_t restore(const std::string& checkpoint, const PlanTable& plan, const std::vector<StageState*>& states,
                const Device& device);

}  // namespace graphpipe::runtime
