#pragma once
// What the devices run: the plan's tables, one action table per rank, and the main functions.

#include <string>
#include <vector>

#include "codegen/generate.h"
#include "codegen/stage_table.h"

namespace graphpipe::codegen {

/// The devices that have actions, in the order of the schedule: their position is their rank.
struct Ranks {
  std::vector<const ir::Program*> programs;
  IdMap<ir::DeviceId, int> rank_of;
  /// The stages that each rank holds, ascending.
  std::vector<std::vector<ir::StageId>> stages;
};
Ranks rank_devices(const ir::StageGraph& stages, const ir::Schedule& schedule);

/// programs/plan.h and plan.cpp. `loss_stage` may be invalid if no stage has a loss.
std::vector<SourceFile> write_plan_table(const ir::Graph& graph, const ir::StageGraph& stages, ir::StageId loss_stage,
                                         const ir::Schedule& schedule, const Ranks& ranks, const WeightGroups& groups,
                                         const GenerateOptions& options, const FirstLines& first);

/// programs/device<rank>.h, .cpp and _main.cpp. `arena` 0: unknown.
std::vector<SourceFile> write_device_program(const Ranks& ranks, size_t rank, Bytes arena, const FirstLines& first);

/// A line of a main function: the array `name` of the stages that the device holds.
std::string held_array(std::string_view name, const Ranks& ranks, size_t rank);
/// The initialiser of its LinkedProgram (runtime/main.h) with that array.
std::string linked_program(std::string_view name, const Ranks& ranks, size_t rank);

/// programs/device_main.cpp of the executable that contains the programs of all ranks.
SourceFile write_common_main(const Ranks& ranks, const std::string& first_line);

}  // namespace graphpipe::codegen
