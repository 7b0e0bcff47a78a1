#pragma once
// Where a run may write: neither over what it reads nor over what makes its folder runnable. `graphpipe run` asks
// before it starts the programs, and the programs ask where a user starts them.

#include <string>

namespace graphpipe::wire {

/// What the path leads to that must stay: "the folder's plan", ...; empty where a run may write there. `folder` is the
/// generated folder, `data` the folder with .npy files, or empty. Names are compared as the file system does, links
/// and hard links included.
std::string kept_file(const std::string& path, const std::string& folder, const std::string& data);

}  // namespace graphpipe::wire
