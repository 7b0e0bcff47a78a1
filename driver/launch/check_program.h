#pragma once
// Whether a program can be started: one of a compiled folder, which must be the one that was built there, or one of the
// installed runtime.

#include <string>

#include "support/result.h"

namespace graphpipe::driver {

/// The build writes the SHA-256 of each program beside it (PROGRAM.sha256, codegen/cmake_project.cpp): what has
/// replaced or changed the program since then is not started.
/// Errors: kEnvironment where the program is missing or cannot be run, kMalformedFile where it is another one.
Status check_built_program(const std::string& path);

/// The path of a program of the runtime that is installed in `runtime` (installed_runtime(), build_folder.h).
/// Errors: kEnvironment where `runtime` is empty, since none was found, and where the program is missing there or
/// cannot be run.
Result<std::string> runtime_program(const std::string& runtime, const std::string& name);

}  // namespace graphpipe::driver
