#pragma once
// What a run that goes on must have in common with the one that wrote a checkpoint, and where it goes on.

#include <functional>
#include <string>
#include <vector>

#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/device/device.h"
#include "runtime/executor/stage_state.h"
#include "wire/run_options.h"

namespace graphpipe::runtime {

/// What a checkpoint of this run says of it, all but the step and the files. Reads the data's files. `folder` is the
/// generated one. Throws RunError.
wire::CheckpointRecord record_of_run(const PlanTable& plan, const wire::RunOptions& options, const std::string& folder);

/// A digest of the folder's data files: their names, sizes, and first and last bytes, so that large data are not read
/// as a whole. 64 zeros where the folder's name is empty.
std::string data_digest(const std::string& folder);
/// The same of data that a feeder names.
std::string fed_data_digest(const std::string& name);

/// The last whole checkpoint of the options' --resume, which fits the run; later ones that are damaged are reported on
/// stderr. Absent where the same folder takes the run's checkpoints and has none yet: the run starts from the
/// beginning. Throws RunError: kUsage where it has none, is of another model, optimizer, seed or of other data, or lies
/// behind the last step; kMalformedFile where none is whole.
std::optional<FoundCheckpoint> find_resume(const wire::RunOptions& options, const wire::CheckpointRecord& run);

/// Gives the states what the checkpoint in this folder has for them. Returns its step. Throws RunError
/// (kMalformedFile).
int64_t restore(const std::string& checkpoint, const PlanTable& plan, const std::vector<StageState*>& states,
                const Device& device);

}  // namespace graphpipe::runtime
