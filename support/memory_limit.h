#pragma once
// What to do where a process has no memory left.

#include <string>

namespace graphpipe {

/// An action: to raise the limit of address space (ulimit -v) where this process has one, which its children inherit,
/// else to check the host's memory.
std::string memory_hint();

}  // namespace graphpipe
