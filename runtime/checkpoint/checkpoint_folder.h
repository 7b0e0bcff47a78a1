#pragma once
// The folder that holds a run's checkpoints on disk (wire/checkpoint.h). Only rank 0 commits to it; the other ranks
// write files into the folder of a checkpoint that is not committed yet. A checkpoint is complete or absent: its files,
// its record and its folder have reached the disk before the folder takes its final name.

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "support/descriptor.h"
#include "support/diagnostic.h"
#include "wire/checkpoint.h"

namespace graphpipe::runtime {

class CheckpointFolder {
 public:
  /// Creates the folder, or takes over one with this mark and removes its unfinished checkpoints. Only one process at a
  /// time holds a folder, until it ends. Throws RunError: kUsage if the folder is not ours, belongs to another model,
  /// or holds checkpoints although `may_hold_some` is not set; kEnvironment.
  CheckpointFolder(const std::string& path, const std::string& model, bool may_hold_some);

  /// Gives the checkpoint in unfinished_checkpoint(path, record.step, token) its final name, and removes all but the
  /// last `keep`. Everything is on disk when it returns. Throws RunError (kEnvironment).
  void commit(const wire::CheckpointRecord& record, const std::string& token, int64_t keep);

 private:
  std::string path_;
  Descriptor lock_;
};

/// Where the files of a checkpoint lie until it is committed. The token identifies one run: two runs never share a
/// folder.
std::string unfinished_checkpoint(const std::string& path, int64_t step, const std::string& token);

/// Removes all that the run of this token has begun in the folder and not committed, but for the checkpoints of these
/// steps. Several ranks may do so at once.
void remove_unfinished(const std::string& path, const std::string& token, const std::set<int64_t>& spared = {});

/// The steps of the checkpoints in a folder, ascending; empty if there is no such folder.
std::vector<int64_t> checkpoint_steps(const std::string& path);

/// The record of one checkpoint. Throws RunError (kMalformedFile, kUnreadableFile).
wire::CheckpointRecord read_checkpoint_record(const std::string& checkpoint);

struct FoundCheckpoint {
  std::string path;
  wire::CheckpointRecord record;
};
/// The last checkpoint of the folder whose record and files are intact, verified byte by byte. Later, damaged ones are
/// reported in `problems`. Absent if there is none.
std::optional<FoundCheckpoint> find_last_checkpoint(const std::string& path, Diagnostics& problems);

}  // namespace graphpipe::runtime
