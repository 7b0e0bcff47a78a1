#pragma once
// The memory that other programs may still take.

#include <string>

namespace graphpipe::driver {

/// Bytes that the system has available and, where the process is in a control group of version 2 with a limit, that the
/// group leaves; infinity where neither is told. `root`: before /proc and /sys.
double free_memory_bytes(const std::string& root = "");

}  // namespace graphpipe::driver
