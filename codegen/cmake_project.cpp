#include "codegen/cmake_project.h"

#include <algorithm>
#include <set>

#include "codegen/block_table.h"
#include "codegen/mark_table.h"
#include "codegen/stage_library.h"
#include "support/integer_math.h"
#include "support/sort_unique.h"
#include "wire/version.h"

namespace graphpipe::codegen {
namespace {

/// Everything that does not depend on the plan; @version@ is replaced by the version of the runtime.
constexpr std::string_view kPrologue = R"cmake(cmake_minimum_required(VERSION 3.22)
project(pipeline LANGUAGES CXX)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE)
  # Straight lines of library calls gain nothing from more optimisation, and compile twice as fast.
  set(CMAKE_BUILD_TYPE None)
  set(bundle_flags "SHELL:-O2 ${CMAKE_CXX_FLAGS}")  # the loops of a bundled runtime do
  set(CMAKE_CXX_FLAGS "-Og ${CMAKE_CXX_FLAGS}")
endif()
# The folder's own headers are those in quotes: whatever else lies here takes the place of no other.
add_compile_options("SHELL:-iquote \"${CMAKE_CURRENT_SOURCE_DIR}\"")
set(GRAPHPIPE_LIBTORCH "$ENV{GRAPHPIPE_LIBTORCH}" CACHE PATH "LibTorch folder (include/ and lib/), 2.11 or later")

# graphpipe::runtime: bundled sources, or the installed library.
set(bundle "${CMAKE_CURRENT_SOURCE_DIR}/runtime")
if(EXISTS "${bundle}/runtime/program.h")
  include("${bundle}/runtime/bundle.cmake")
else()
  set(GRAPHPIPE_RUNTIME_DIR "$ENV{GRAPHPIPE_RUNTIME_DIR}" CACHE PATH "Where GraphPipe's runtime is installed")
  find_package(GraphPipe @version@ CONFIG QUIET HINTS "${GRAPHPIPE_RUNTIME_DIR}")
  if(NOT GraphPipe_FOUND)
    message(FATAL_ERROR "No GraphPipe runtime @version@ at '${GRAPHPIPE_RUNTIME_DIR}' (found: "
      "'${GraphPipe_CONSIDERED_VERSIONS}'): set GRAPHPIPE_RUNTIME_DIR or CMAKE_PREFIX_PATH to where it is installed, "
      "or generate with --bundle")
  endif()
endif()
if(COMMAND graphpipe_use_fast_linker)  # of a runtime that has it
  graphpipe_use_fast_linker()
endif()
)cmake";

std::string prologue() {
  constexpr std::string_view kMark = "@version@";
  std::string text(kPrologue);
  for (size_t at = text.find(kMark); at != std::string::npos; at = text.find(kMark, at))
    text.replace(at, kMark.size(), wire::kToolVersion);
  return text;
}

/// LibTorch's headers and templates dominate the time to compile a stage's file, whatever the file contains.
constexpr std::string_view kAddStage = R"cmake(
# LibTorch's headers are most of what a file costs to compile. So `batch` files of a stage are compiled as one, and the
# headers are taken as they came compiled with the runtime, where compiler, flags and LibTorch are the same: see
# GraphPipeConfig.cmake.
function(add_stage name kind batch)
  add_library(${name} ${kind} ${ARGN})
  set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${batch})
  target_link_libraries(${name} PUBLIC graphpipe::runtime)
  if(GRAPHPIPE_COMPILED_HEADERS)
    target_compile_options(${name} PRIVATE -Winvalid-pch -include "${GRAPHPIPE_COMPILED_HEADERS}")
  elseif(TARGET pipeline_headers)
    target_precompile_headers(${name} REUSE_FROM pipeline_headers)
  endif()
endfunction()
)cmake";
/// Even precompiled headers cost about two seconds per unit, as much as this many lines of a stage.
constexpr size_t kLinesPerUnit = 2500;

/// Records the digest that `graphpipe run` checks before it starts a program.
constexpr std::string_view kRecordDigest = R"cmake(
function(record_digest program)
  add_custom_command(TARGET ${program} POST_BUILD
    COMMAND ${CMAKE_COMMAND} -E sha256sum ${program} > ${program}.sha256
    WORKING_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}")
endfunction()
)cmake";

/// Precompiling the headers costs as much as including them in this many units.
constexpr size_t kFewUnits = 5;

std::vector<std::string> files_in(std::string_view folder, const std::vector<SourceFile>& sources) {
  std::vector<std::string> files;
  for (const SourceFile& file : sources)
    if (file.path.starts_with(text(folder, "/")) && file.path.ends_with(".cpp")) files.push_back(file.path);
  return files;
}

/// How many files of the folder are compiled as one unit.
size_t batch_of(std::string_view folder, const std::vector<SourceFile>& sources) {
  const std::vector<std::string> files = files_in(folder, sources);
  size_t lines = 0;
  for (const SourceFile& file : sources)
    if (std::ranges::find(files, file.path) != files.end())
      lines += static_cast<size_t>(std::ranges::count(file.text, '\n'));
  const size_t units = std::max<size_t>(1, lines / kLinesPerUnit);
  return std::max<size_t>(1, ceil_div(files.size(), units));
}

size_t units_of(std::string_view folder, const std::vector<SourceFile>& sources) {
  const size_t batch = batch_of(folder, sources);
  return (files_in(folder, sources).size() + batch - 1) / batch;
}

/// Precompiles headers in the project if the runtime provides none that fit and there are enough units to benefit.
std::string precompiled_headers(const std::vector<ir::StageId>& stages, const std::vector<SourceFile>& sources) {
  size_t units = units_of(kBlocksFolder, sources);
  for (ir::StageId stage : stages) units += units_of(stage_folder(stage), sources);
  if (units <= kFewUnits) return "";
  std::set<std::string> headers;
  for (const SourceFile& file : sources) {
    if (!file.path.starts_with("stages/") && !file.path.starts_with(kBlocksFolder)) continue;
    for (size_t at = file.text.find("#include <ATen/"); at != std::string::npos;
         at = file.text.find("#include <ATen/", at + 1)) {
      // Within a line it is a name of the model.
      if (at != 0 && file.text[at - 1] != '\n') continue;
      headers.insert(file.text.substr(at + 9, file.text.find('>', at) + 1 - (at + 9)));
    }
  }
  std::string result =
      "\n# Elsewhere this project compiles those that it includes, once for all stages.\n"
      "if(NOT GRAPHPIPE_COMPILED_HEADERS)\n"
      "  file(CONFIGURE OUTPUT headers.cpp CONTENT \"\")\n"
      "  add_library(pipeline_headers OBJECT \"${CMAKE_CURRENT_BINARY_DIR}/headers.cpp\")\n"
      "  target_link_libraries(pipeline_headers PUBLIC graphpipe::runtime)\n"
      "  target_precompile_headers(pipeline_headers PRIVATE";
  for (const std::string& header : headers) result += "\n    " + header;
  return result + ")\nendif()\n";
}

/// `kind`: STATIC where a program takes those of the library's objects that it needs; OBJECT where it takes all, which
/// saves making archives.
std::string library_of(std::string_view name, std::string_view kind, std::string_view folder,
                       const std::vector<SourceFile>& sources) {
  std::string result = text("\nadd_stage(", name, " ", kind, " ", batch_of(folder, sources));
  for (const std::string& file : files_in(folder, sources)) result += text("\n  ", file);
  return result + ")\n";
}

/// A library per stage, and one for the blocks that the stages share.
std::string stage_libraries(const std::vector<ir::StageId>& stages, const std::vector<SourceFile>& sources) {
  const bool has_blocks = !files_in(kBlocksFolder, sources).empty();
  std::string result = has_blocks ? library_of(kBlocksFolder, "STATIC", kBlocksFolder, sources) : "";
  for (ir::StageId stage : stages) {
    const std::string name = text("stage", stage);
    result += library_of(name, "OBJECT", stage_folder(stage), sources);
    if (has_blocks) result += text("target_link_libraries(", name, " PUBLIC ", kBlocksFolder, ")\n");
  }
  return result;
}

/// How many files of tables are compiled as one: a table costs little more than the headers that its file includes.
constexpr size_t kTablesPerUnit = 16;

// One library with the tables of all ranks. An executable uses those that its main function names, and links their
// stages. A single unit needs no archive.
std::string program_library(size_t ranks) {
  std::string result =
      text("\nadd_library(programs ", ranks < kTablesPerUnit ? "OBJECT" : "STATIC", " programs/plan.cpp");
  for (size_t rank = 0; rank < ranks; ++rank) result += text(" programs/device", rank, ".cpp");
  return result + text(")\nset_target_properties(programs PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ",
                       kTablesPerUnit, ")\ntarget_link_libraries(programs PUBLIC graphpipe::runtime)\n");
}

/// Whether a program is built with all others or by its name alone: each costs a link with LibTorch's symbols.
enum class Built : uint8_t { kWithAll, kByName };

std::string executable(std::string_view name, std::string_view main, const std::vector<ir::StageId>& stages,
                       Built built = Built::kWithAll) {
  std::string result = text("\nadd_executable(", name, built == Built::kByName ? " EXCLUDE_FROM_ALL " : " ", main,
                            ")\ntarget_link_libraries(", name, " PRIVATE programs");
  for (ir::StageId stage : stages) result += text(" stage", stage);
  return result + text(" graphpipe::runtime)\nrecord_digest(", name, ")\n");
}

/// For whoever places programs by hand: one per device, with its stages alone. `device` has those of all.
std::string single_devices(const Ranks& ranks) {
  std::string result, names;
  for (size_t rank = 0; rank < ranks.programs.size(); ++rank) {
    const std::string name = text("device", rank);
    result += executable(name, text("programs/", name, "_main.cpp"), ranks.stages[rank], Built::kByName);
    names += " " + name;
  }
  return result + text("\nadd_custom_target(devices DEPENDS", names, ")\n");
}

}  // namespace

SourceFile write_cmake_project(const Ranks& ranks, const std::vector<SourceFile>& sources,
                               const std::string& first_line) {
  // The first line is a C++ comment: "//" becomes "#".
  std::string body = "#" + first_line.substr(2) + prologue();
  std::vector<ir::StageId> stages;
  for (const std::vector<ir::StageId>& held : ranks.stages) stages.insert(stages.end(), held.begin(), held.end());
  sort_unique(stages);
  body += std::string(kAddStage) + std::string(kRecordDigest) + precompiled_headers(stages, sources);
  body += stage_libraries(stages, sources);
  body += program_library(ranks.programs.size());
  body += single_devices(ranks);
  body += executable("device", "programs/device_main.cpp", stages);
  if (std::ranges::find(sources, kProfileMain, &SourceFile::path) != sources.end())
    body += executable("profile", kProfileMain, ranks.stages.front());
  return {"CMakeLists.txt", body};
}

}  // namespace graphpipe::codegen
