#pragma once

namespace graphpipe::wire {

/// The version of GraphPipe: in every --json envelope, in every file that we write, on both sides of the wall.
/// CMake reads it from here.
inline constexpr const char* kToolVersion = "0.2.0";

}  // namespace graphpipe::wire
