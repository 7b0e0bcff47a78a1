#pragma once
// What stands in for the code of stages in a paced run: values without content, and pauses in which the rank sleeps
// and its messages move, as a device's copies go on beside its kernels.

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
  /// All that it is given must outlive it.
  Pacer(const PacedProgram& program, Channels& channels)
      : program_(program), channels_(channels), memory_(program.largest_bytes()) {}

  /// Puts the values into the item's slot that the stage's function would put there.
  void compute(const ResolvedAction& action, StageState& state, std::vector<at::Tensor>& slot);
  /// Gives the update the gradients of a replica that had no item of it.
  void complete_gradients(const ResolvedAction& action, StageState& state);
  /// Makes a version without changing a weight.
  void step(const ResolvedAction& action, StageState& state);
  /// Lasts as long as the program's action of this number.
  void pause(size_t action, const std::function<void()>& meanwhile) { sleep(program_.nanoseconds(action), meanwhile); }
  void sleep(int64_t nanoseconds, const std::function<void()>& meanwhile);
  /// Nanoseconds by which pauses were longer than asked for, since the last call; and their number.
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
