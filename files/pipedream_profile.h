#pragma once
// Profiles of PipeDream's profiler (and DAPPLE's, which are the same): lines of text.
//
//   node17 -- Conv2d(3, 64, ...) -- forward_compute_time=4.4, backward_compute_time=7.2, activation_size=44302336.0,
//             parameter_size=3539968.0 [-- stage_id=2]          (one line; milliseconds and bytes of one mini-batch)
//   <tab>node3 -- node17                                        (an edge, after both of its nodes)
//
// An activation size may be a list, "[12582912.0; 131072.0]", which is added up.

#include <string>
#include <string_view>

#include "ir/imported_profile.h"

namespace graphpipe::files {

/// The layers that compute: sources described as `Input...` and sinks described as `__getitem__...` are left out, as
/// PipeDream's optimizer does, and named in left_out. Errors: kMalformedFile with the number of the line, kBadProfile
/// for layers that make no graph, kLimitExceeded.
Result<ir::ImportedProfile> parse_pipedream_profile(std::string_view text);
Result<ir::ImportedProfile> read_pipedream_profile(const std::string& path);

}  // namespace graphpipe::files
