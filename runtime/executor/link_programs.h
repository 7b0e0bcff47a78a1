#pragma once
// What the main functions hand over, as the executor reads it.

#include <span>
#include <vector>

#include "runtime/main.h"
#include "runtime/program.h"

namespace graphpipe::runtime {

/// The programs with the stages that are linked for them. Needs: these and their tables outlive the result.
inline std::vector<DeviceProgram> link_programs(std::span<const LinkedProgram> linked) {
  std::vector<DeviceProgram> programs;
  for (const LinkedProgram& one : linked) {
    programs.push_back(*one.program);
    programs.back().stages = {one.stages, static_cast<size_t>(one.stage_count)};
  }
  return programs;
}

}  // namespace graphpipe::runtime
