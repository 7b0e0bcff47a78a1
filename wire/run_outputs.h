#pragma once
// What a run writes, and where it may: neither over what it reads nor over what makes its folder runnable. `graphpipe
// run` asks before it starts the programs, and the programs ask where a user starts them.

#include <string>
#include <vector>

#include "wire/run_options.h"

namespace graphpipe::wire {

/// A file that a flag names to be written.
struct WrittenFile {
  const char* flag;
  std::string path;
};
/// Those that flags name; without folders, whose files have names of their own.
std::vector<WrittenFile> written_files(const RunOptions& options);

/// What the path leads to that must stay: "the folder's plan", ...; empty where a run may write there. `folder` is the
/// generated folder, empty where there is none; what else is read, and the checkpoints, say the options. Names are
/// compared as the file system does, links and hard links included.
std::string kept_file(const std::string& path, const std::string& folder, const RunOptions& options);

}  // namespace graphpipe::wire
