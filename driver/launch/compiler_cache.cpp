#include "driver/launch/compiler_cache.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "driver/launch/process.h"
#include "support/text.h"

namespace graphpipe::driver {
namespace {

namespace fs = std::filesystem;

/// ccache fails, and the compilation with it, where it cannot write.
bool can_write_its_folder() {
  const Result<Finished> asked = run_and_collect({.arguments = {"ccache", "--get-config", "cache_dir"}});
  if (!asked.ok() || !asked->ending.ok()) return false;
  const std::string folder = asked->output.substr(0, asked->output.find('\n'));
  std::error_code error;
  fs::create_directories(folder, error);
  return !folder.empty() && access(folder.c_str(), W_OK) == 0;
}

}  // namespace

bool is_on_path(const std::string& program) {
  const char* const variable = std::getenv("PATH");
  const std::string path = variable == nullptr ? "" : variable;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    if (access((path.substr(begin, end - begin) + "/" + program).c_str(), X_OK) == 0) return true;
    begin = end + 1;
  }
  return false;
}

CompilerCache compiler_cache(const std::string& folder) {
  if (const char* own = std::getenv("CMAKE_CXX_COMPILER_LAUNCHER")) return {.launcher = own, .environment = {}};
  if (!is_on_path("ccache") || !can_write_its_folder()) return {};
  CompilerCache cache{.launcher = "ccache", .environment = {}};
  const auto set = [&](const std::string& name, const std::string& value) {
    if (std::getenv(name.c_str()) == nullptr) cache.environment.push_back(text(name, "=", value));
  };
  // The folder's own files by relative paths, which are the same in every folder.
  set("CCACHE_BASEDIR", fs::absolute(folder).lexically_normal().string());
  set("CCACHE_NOHASHDIR", "1");
  // LibTorch's headers come compiled; their digest stands beside them (runtime/compile_headers.cmake).
  set("CCACHE_SLOPPINESS", "pch_defines,time_macros");
  set("CCACHE_PCH_EXTSUM", "1");
  return cache;
}

}  // namespace graphpipe::driver
