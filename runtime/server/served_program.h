#pragma once
// The program of a rank if a parameter server is a separate process (docs/schedules.md, section 3.1): derived from the
// programs of a plan whose replicas take turns and apply one update after each micro-batch, which they otherwise all
// reduce and apply alike.
//
// The server is replica 0 of the plan's stage, on a device after those of the plan; device r has replica r + 1, which
// computes what the plan assigns to its replica r.

#include <vector>

#include "runtime/program.h"

namespace graphpipe::runtime {

/// Owns the tables of one program. For a worker: F, B and STEP of its own micro-batches, each with the version made by
/// its own previous updates. For the server: the STEPs of all micro-batches, in order.
class ServedProgram {
 public:
  /// `program` is the plan's program of device `rank`, or of any device if the rank is the server's. What both point to
  /// must outlive it. Throws RunError (kUsage) if the plan is of another kind.
  ServedProgram(const DeviceProgram& program, int32_t rank);
  ServedProgram(const ServedProgram&) = delete;
  const DeviceProgram& program() const { return program_; }

 private:
  void take_actions(const DeviceProgram& program);
  bool is_server() const { return program_.device == plan_.server; }

  PlanTable plan_;
  std::vector<StageRow> stages_;
  std::vector<PlacementRow> placement_;
  std::vector<wire::ActionRow> actions_;
  DeviceProgram program_;
};

}  // namespace graphpipe::runtime
