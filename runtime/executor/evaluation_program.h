#pragma once
// What a device runs if the model is only evaluated: the forwards of its program and the messages between them, in
// order. A program that does not deadlock still does not without its backwards: nothing waits for more than before.

#include <vector>

#include "runtime/program.h"

namespace graphpipe::runtime {

class EvaluationProgram {
 public:
  /// For the first `samples` samples of the batch. Stages run StageEntry::evaluate if they have it. The loss is that of
  /// the samples together, in one update, whatever the schedule's updates are.
  EvaluationProgram(const DeviceProgram& program, int64_t samples);
  EvaluationProgram(const EvaluationProgram&) = delete;
  EvaluationProgram& operator=(const EvaluationProgram&) = delete;
  const DeviceProgram& program() const { return program_; }

 private:
  PlanTable plan_;
  std::vector<StageEntry> entries_;
  std::vector<const StageEntry*> held_;
  std::vector<wire::ActionRow> actions_;
  DeviceProgram program_;
};

}  // namespace graphpipe::runtime
