#pragma once
// ccache (https://ccache.dev) in front of the compiler of generated folders, where it is installed: stages that another
// folder has compiled, of another plan or policy for the same model, are not compiled again.

#include <string>
#include <vector>

namespace graphpipe::driver {

struct CompilerCache {
  /// What CMake calls the compiler by; empty: the compiler alone. That of the user's CMAKE_CXX_COMPILER_LAUNCHER where
  /// there is one.
  std::string launcher;
  /// "NAME=value", for the build: settings that the user's environment does not have.
  std::vector<std::string> environment;
};

/// What `folder` is built with. Nothing where ccache is not on PATH, or has no folder that it can write.
CompilerCache compiler_cache(const std::string& folder);

/// Whether a program of this name is on PATH.
bool is_on_path(const std::string& program);

}  // namespace graphpipe::driver
