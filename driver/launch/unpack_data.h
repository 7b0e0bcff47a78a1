#pragma once
// Data in files that are not .npy: Parquet, Arrow and WebDataset tar. python/graphpipe_data unpacks them into a
// folder of .npy parts, once: it is kept in a cache, and everything that reads data reads that folder.

#include <string>
#include <vector>

#include "support/descriptor.h"
#include "support/result.h"
#include "wire/run_options.h"

namespace graphpipe::driver {

/// Whether `data` names such files: by its ending, or as a folder that holds them and no .npy or .pb file.
bool names_packed_files(const std::string& data);

/// Folders of the cache that a run reads: as long as this lives, other runs leave them there.
struct HeldData {
  std::vector<Descriptor> folders;
};

/// Puts the folders that the files of --data and --eval-data were unpacked into in their place; other data stay. The
/// cache is $GRAPHPIPE_DATA_CACHE, or `graphpipe/data` of the user's cache folder; the Python $GRAPHPIPE_PYTHON, or
/// python3. Errors: kBadData for files that do not fit the inputs of the generated folder; kEnvironment where a cache
/// folder, Python, pyarrow or room is missing.
Result<HeldData> unpack_data(const std::string& generated_folder, wire::RunOptions& run, bool quiet);

}  // namespace graphpipe::driver
