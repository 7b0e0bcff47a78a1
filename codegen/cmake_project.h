#pragma once
// The generated folder's build: CMakeLists.txt.

#include "codegen/device_program.h"

namespace graphpipe::codegen {

/// Builds device, serial and, by name, device<rank> from `sources` (the other generated files) with CMake 3.22 or
/// later, a C++20 compiler, LibTorch, and the runtime: its bundled sources in runtime/ if they are there, otherwise the
/// installed library at GRAPHPIPE_RUNTIME_DIR, by find_package(GraphPipe).
SourceFile write_cmake_project(const Ranks& ranks, const std::vector<SourceFile>& sources,
                               const std::string& first_line);

}  // namespace graphpipe::codegen
