#pragma once
// Whether a program of a compiled folder is the one that was built there.

#include <string>

#include "support/result.h"

namespace graphpipe::driver {

/// The build writes the SHA-256 of each program beside it (PROGRAM.sha256, codegen/cmake_project.cpp): what has
/// replaced or changed the program since then is not started.
/// Errors: kEnvironment where the program is missing or cannot be run, kMalformedFile where it is another one.
Status check_built_program(const std::string& path);

/// Errors: kEnvironment where the program is missing or cannot be run.
Status check_program(const std::string& path);

}  // namespace graphpipe::driver
