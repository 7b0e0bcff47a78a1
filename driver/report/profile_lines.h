#pragma once
// What a profiling program printed (runtime/profiling/profile.h), as a profile.

#include <string_view>

#include "ir/graph.h"
#include "ir/profile.h"
#include "support/result.h"

namespace graphpipe::driver {

/// A signature's seconds are the mean over its nodes, of each pass over those that have it. Every forward node of the
/// graph has an entry afterwards. Errors (kPeerFailed): lines that are none of the program's, or no measurement at all.
Result<ir::Profile> profile_of_lines(std::string_view report, const ir::Graph& graph);

}  // namespace graphpipe::driver
