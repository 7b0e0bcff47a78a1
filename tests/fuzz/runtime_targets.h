#pragma once
// The readers of the programs: what lies in their folders and in data folders, and what others send them.

#include <vector>

#include "tests/fuzz/targets.h"

namespace graphpipe::tests {

std::vector<FuzzTarget> runtime_targets();

}  // namespace graphpipe::tests
