#pragma once
// A file of a checkpoint that is being written. Its folder has a temporary name until the checkpoint is committed, so
// the file gets its final name at once; the folder is flushed once, by whoever commits (checkpoint_folder.h).

#include <string>
#include <vector>

#include "runtime/io/safetensors.h"
#include "wire/manifest.h"

namespace graphpipe::runtime {

/// Writes the tensors as safetensors; the bytes are on disk when it returns their digest. Throws RunError
/// (kEnvironment), also if the file already exists.
wire::ManifestEntry write_shard_file(const std::string& folder, const std::string& name,
                                     const std::vector<NamedTensor>& tensors);

}  // namespace graphpipe::runtime
