#pragma once
// Replaces the code of stages in a paced run: values without content, and pauses in which the rank sleeps while its
// messages move, as a device's copies overlap with its kernels.

#include <cstdint>
#include <functional>

#include "runtime/executor/channels.h"
#include "runtime/executor/resolve.h"
#include "runtime/executor/stage_state.h"
#include "runtime/pace/paced_program.h"
#include "runtime/pace/repeated_memory.h"

namespace graphpipe::runtime {

class Pacer {
 public:
  /// All arguments must outlive it.
  Pacer(const PacedProgram& program, Channels& channels)
      : program_(program), channels_(channels), memory_(program.largest_bytes()) {}

  /// Puts the values into the item's slot that the stage's function would have put there.
  void compute(const ResolvedAction& action, StageState& state, std::vector<at::Tensor>& slot);
  /// Adds the gradients that an update lacks on a replica that had no item of it.
  void complete_gradients(const ResolvedAction& action, StageState& state);
  /// Makes a version without changing any weight.
  void step(const ResolvedAction& action, StageState& state);
  /// Lasts as long as the program's action with this index.
  void pause(size_t action, const std::function<void()>& meanwhile) { sleep(program_.nanoseconds(action), meanwhile); }
  void sleep(int64_t nanoseconds, const std::function<void()>& meanwhile);
  /// Nanoseconds by which pauses took longer than requested, since the last call, and the number of pauses.
  struct Late {
    int64_t nanoseconds = 0, pauses = 0;
  };
  Late take_late() { return std::exchange(late_, {}); }

 private:
  const PacedProgram& program_;
  Channels& channels_;
  RepeatedMemory memory_;
  Late late_;
};

}  // namespace graphpipe::runtime
