#pragma once
// Compiles a generated folder with CMake, into FOLDER/build.

#include <string>

#include "driver/cli/options.h"
#include "support/result.h"

namespace graphpipe::driver {

/// Where the runtime is installed: GRAPHPIPE_RUNTIME_DIR, else beside this program (<bin>/../prefix, <bin>/..), else
/// where the build that made this program installs it; empty where it is nowhere.
std::string installed_runtime();

/// What to do where the runtime, or a part of it, is missing.
inline constexpr const char* kInstallRuntimeHint =
    "set GRAPHPIPE_RUNTIME_DIR to the prefix that holds share/graphpipe (scripts/build installs it), or run "
    "graphpipe-runtime where GraphPipe came as a package";

/// Whether CMake can build in a folder of this path: its lists and its files have no way to write some characters.
/// Errors: kUsage.
Status check_build_path(const std::string& folder);

/// Configures and builds, all programs or the one named. The runtime comes from installed_runtime(),
/// unless the folder bundles it; LibTorch from GRAPHPIPE_LIBTORCH, else it is the one that the runtime was built with.
/// Compiles by ccache where it is installed (compiler_cache.h).
/// Output of the tools goes to FOLDER/build.log.
/// Errors: kUsage, as check_build_path; kEnvironment, with the last lines of the log; kInterrupted.
Status build_folder(const std::string& folder, const Options& options, const std::string& target = "");

}  // namespace graphpipe::driver
