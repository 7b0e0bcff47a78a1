#pragma once
// The memory of a schedule against the validator, which counts it in its own way.

#include <doctest/doctest.h>

#include "scheduler/memory/memory.h"
#include "scheduler/validate/check_schedule.h"

namespace graphpipe::tests {

using namespace graphpipe::scheduler;

/// The validator accepts each device with the peak, and with a byte less refuses the action that has it.
inline void check_that_validator_agrees(const StageGraph& graph, const Schedule& schedule,
                                        const CheckOptions& options) {
  const std::vector<DeviceMemory> memory = memory_of(graph, schedule, options.memory);
  size_t devices = 0;
  for (const ir::Program& program : schedule.programs) devices = std::max(devices, program.device.index() + 1);
  for (size_t p = 0; p < memory.size(); ++p) {
    const ir::Program& program = schedule.programs[p];
    ir::Cluster cluster = ir::equal_devices(static_cast<int>(devices));
    Bytes& has = cluster.devices[program.device].memory;
    has = memory[p].peak;
    INFO(ir::print_schedule(schedule));
    const Status enough = check_schedule(graph, cluster, schedule, options);
    INFO((enough.ok() ? "" : enough.problems().front().message));
    REQUIRE(enough.ok());
    has = memory[p].peak - Bytes(1);
    const Status refused = check_schedule(graph, cluster, schedule, options);
    REQUIRE_FALSE(refused.ok());
    const size_t at = memory[p].peak_position;
    const std::string place = program.actions.empty() ? text("device ", program.device, " needs")
                                                      : text("device ", program.device, ", action ", at, ": ");
    CHECK(refused.problems().front().message.starts_with(place));
    CHECK(refused.problems().front().code == Code::kNoFeasiblePlan);
  }
}

}  // namespace graphpipe::tests
