#include "driver/launch/build_folder.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <thread>

#include "driver/cli/commands.h"
#include "driver/launch/choose_kernels.h"
#include "driver/launch/compiler_cache.h"
#include "driver/launch/digest.h"
#include "driver/launch/failed_run.h"
#include "driver/launch/folder_lock.h"
#include "driver/launch/output_folder.h"
#include "driver/launch/process.h"
#include "driver/report/report.h"

namespace graphpipe::driver {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRuntimeMark = "share/graphpipe/GraphPipeConfig.cmake";

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// The user's LibTorch, else the one that the installed runtime was built with; empty where neither is known.
std::string libtorch_folder() {
  if (const std::string given = environment("GRAPHPIPE_LIBTORCH"); !given.empty()) return fs::absolute(given);
  std::ifstream file(installed_runtime() + "/share/graphpipe/libtorch.path");
  std::string folder;
  std::getline(file, folder);
  return folder;
}

// "[3/20] ..." of Ninja, or "[ 15%] ..." of Make, as a fraction; negative where a line has none.
double progress_of(std::string_view line) {
  if (line.empty() || line[0] != '[') return -1;
  char* end = nullptr;
  const std::string text(line.substr(1));
  const double first = std::strtod(text.c_str(), &end);
  if (*end == '%') return first / 100;
  if (*end != '/') return -1;
  const double all = std::strtod(end + 1, nullptr);
  return all > 0 ? first / all : -1;
}

std::string last_lines(const std::string& text, int count) {
  size_t at = text.size();
  for (int i = 0; i <= count && at != std::string::npos && at > 0; ++i) at = text.rfind('\n', at - 1);
  return at == std::string::npos ? text : text.substr(at);
}

Result<std::string> runtime_to_link() {
  std::string runtime = installed_runtime();
  if (fs::exists(fs::path(runtime) / kRuntimeMark)) return runtime;
  return Diagnostic{.code = Code::kEnvironment,
                    .origin = ModelText(runtime),
                    .message = "no installed runtime was found: programs have nothing to link",
                    .hint = kInstallRuntimeHint};
}

Status run_tool(const Command& command, std::ofstream& log, Progress& progress, std::string_view what) {
  double fraction = -1;
  GP_TRY(const Finished finished, run_and_collect(command, [&](size_t, std::string_view line) {
           fraction = std::max(fraction, progress_of(line));
           progress.update(fraction, what);
         }));
  log << finished.output << std::flush;
  if (finished.ending.ok()) return Ok{};
  if (interrupted()) return was_interrupted("the build", "start the same command again: what was compiled is kept");
  return Diagnostic{.code = Code::kEnvironment,
                    .message = text(what, " failed:", last_lines(finished.output, 15)),
                    .hint = "the whole output is in build.log in the folder"};
}

/// Whether ccache has ended the compiler: its folder cannot be written, or the disk is full.
bool has_cache_error(const std::string& log_path) {
  std::ifstream log(log_path);
  for (std::string line; std::getline(log, line);)
    if (line.starts_with("ccache: error")) return true;
  return false;
}

std::string cache_file(const std::string& folder) { return folder + "/build/CMakeCache.txt"; }
std::string cache_digest_file(const std::string& folder) { return folder + "/build/CMakeCache.sha256"; }

// The files that CMake runs again at every build: its cache, and what it has found out about the compiler and the
// system.
std::vector<std::string> remembered_files(const std::string& folder) {
  std::vector<std::string> files = {cache_file(folder)};
  std::error_code error;
  for (const fs::directory_entry& version : fs::directory_iterator(folder + "/build/CMakeFiles", error))
    for (const fs::directory_entry& file : fs::directory_iterator(version.path(), error))
      if (file.path().extension() == ".cmake" && file.path().filename().string().starts_with("CMake"))
        files.push_back(file.path().string());
  std::ranges::sort(files);
  return files;
}

// The digest of what CMake remembers, and of the path of the folder that it remembers it for.
Result<std::string> cache_digest(const std::string& folder) {
  std::string told = fs::absolute(folder).lexically_normal().string();
  for (const std::string& file : remembered_files(folder)) {
    GP_TRY(const std::string digest, sha256_of_file(file));
    told += text("\n", fs::path(file).lexically_relative(folder).string(), " ", digest);
  }
  return sha256_of_text(told);
}

// Whether CMake's cache is the one that our last build left in this folder. Any other may name another compiler or
// other flags, and the cache of a copied folder names the original.
bool is_own_cache(const std::string& folder) {
  const Result<std::string> digest = cache_digest(folder);
  std::ifstream file(cache_digest_file(folder));
  std::string remembered;
  std::getline(file, remembered);
  return digest.ok() && remembered == *digest;
}

void forget_cache(const std::string& folder) {
  std::error_code ignored;  // where it cannot be removed, CMake cannot write it either, and says so
  fs::remove(cache_file(folder), ignored);
  fs::remove_all(folder + "/build/CMakeFiles", ignored);
}

Status remember_cache(const std::string& folder) {
  GP_TRY(const std::string digest, cache_digest(folder));
  return write_if_changed(cache_digest_file(folder), digest + "\n");
}

}  // namespace

std::string installed_runtime() {
  if (const std::string given = environment("GRAPHPIPE_RUNTIME_DIR"); !given.empty()) return fs::absolute(given);
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) return "";
  // The second one is where a package's graphpipe-runtime installs it; the last one is for a program that was copied
  // out of its build folder.
  for (const fs::path& candidate : {program.parent_path() / "../prefix", program.parent_path() / "../lib/graphpipe",
                                    program.parent_path() / "..", fs::path(GRAPHPIPE_BUILD_PREFIX)})
    if (!candidate.empty() && fs::exists(candidate / kRuntimeMark)) return fs::weakly_canonical(candidate);
  return "";
}

Status check_build_path(const std::string& folder) {
  const std::string path = fs::absolute(folder).string();
  const size_t at = path.find_first_of(";\"\\\n");
  if (at == std::string::npos) return Ok{};
  return Diagnostic{.code = Code::kUsage,
                    .origin = ModelText(path),
                    .message = text("CMake cannot build in a folder whose path holds ",
                                    path[at] == '\n' ? "a line break" : text("'", path[at], "'")),
                    .hint = "name a folder whose path has no quotation mark, backslash, semicolon or line break"};
}

Status build_folder(const std::string& folder, const Options& options, const std::string& target) {
  if (!fs::exists(fs::path(folder) / "CMakeLists.txt")) {
    return Diagnostic{.code = Code::kUnreadableFile,
                      .origin = ModelText(folder),
                      .message = "the folder holds no generated project",
                      .hint = "run `graphpipe generate` or `graphpipe compile` first"};
  }
  GP_TRY_VOID(check_build_path(folder));
  GP_TRY_VOID(check_sources(folder));
  Command configure{.arguments = {"cmake", "-S", folder, "-B", folder + "/build"}, .own_group = true};
  if (!is_own_cache(folder)) forget_cache(folder);
  if (is_on_path("ninja") && !fs::exists(fs::path(folder) / "build/Makefile")) {
    configure.arguments.insert(configure.arguments.end(), {"-G", "Ninja"});
  }
  if (!fs::exists(fs::path(folder) / "runtime")) {
    GP_TRY(const std::string runtime, runtime_to_link());
    configure.arguments.push_back("-DGRAPHPIPE_RUNTIME_DIR=" + runtime);
  }
  if (const std::string libtorch = libtorch_folder(); !libtorch.empty())
    configure.arguments.push_back("-DGRAPHPIPE_LIBTORCH=" + libtorch);
  const CompilerCache cache = compiler_cache(folder);
  configure.arguments.push_back("-DCMAKE_CXX_COMPILER_LAUNCHER=" + cache.launcher);
  const unsigned jobs = std::max(1U, std::thread::hardware_concurrency());
  Command build{.arguments = {"cmake", "--build", folder + "/build", "--parallel", std::to_string(jobs)},
                .environment = cache.environment,
                .own_group = true};
  if (!target.empty()) build.arguments.insert(build.arguments.end(), {"--target", target});
  // Removed first, so that a symbolic link in its place is not followed and a named pipe does not block.
  std::error_code ignored;
  fs::remove(folder + "/build.log", ignored);
  const std::string log_path = folder + "/build.log";
  std::ofstream log(log_path);
  if (!log) return disk_problem(log_path, std::error_code(errno, std::generic_category()));
  Progress progress(options, "building");
  GP_TRY_VOID(run_tool(configure, log, progress, "configuring"));
  GP_TRY_VOID(remember_cache(folder));
  Status built = run_tool(build, log, progress, "compiling the stages");
  if (!built && !interrupted() && has_cache_error(log_path)) {
    build.environment.emplace_back("CCACHE_DISABLE=1");
    built = run_tool(build, log, progress, "compiling the stages");
  }
  if (!built) return built;
  return target.empty() ? choose_kernels(folder) : Ok{};
}

int run_build(const Options& options) {
  catch_interrupts();
  std::optional<FolderLock> lock;
  if (std::filesystem::is_directory(options.input)) {
    Result<FolderLock> taken = FolderLock::take(options.input);
    if (!taken) return report_problems(options, "build", taken.problems());
    lock.emplace(std::move(*taken));
  }
  const Status status = build_folder(options.input, options);
  if (!status) return report_problems(options, "build", status.problems());
  if (options.json) print_json("build", JsonObject().add("folder", options.input), {});
  else std::cout << "built " << Terminal::encode_text(options.input).str() << "/build\n";
  return 0;
}

}  // namespace graphpipe::driver
