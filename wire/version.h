#pragma once

namespace graphpipe::wire {

/// The version of GraphPipe: in every --json envelope, in every file that we write, on both sides of the wall.
inline constexpr const char* kToolVersion = "0.1.0";

}  // namespace graphpipe::wire
