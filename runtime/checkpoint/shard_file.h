#pragma once
// A file of a checkpoint that is being written. Its folder has a name of its own until the checkpoint counts, so the
// file takes its name at once; and the folder is flushed once, by whoever commits (checkpoint_folder.h).

#include <string>
#include <vector>

#include "runtime/io/safetensors.h"
#include "wire/manifest.h"

namespace graphpipe::runtime {

/// Writes the tensors as safetensors; the bytes are on the disk when it returns, with their digest. Throws RunError
/// (kEnvironment), also where such a file stands there.
wire::ManifestEntry write_shard_file(const std::string& folder, const std::string& name,
                                     const std::vector<NamedTensor>& tensors);

}  // namespace graphpipe::runtime
