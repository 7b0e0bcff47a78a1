#pragma once
// How each stage of a rank spends its time: a few numbers per step, where a trace records every action (tracer.h).

#include <chrono>
#include <cstdint>
#include <vector>

#include "runtime/executor/resolve.h"

namespace graphpipe::runtime {

struct StageNumbers {
  int32_t stage = -1, replica = 0;
  /// Seconds of the rank's thread in the stage's actions. busy: the action has what it needs (on a GPU, until its
  /// kernels are queued); waiting: it waits for messages, for reductions, or for a send that still reads its memory.
  double busy = 0, waiting = 0;
};

class StageMeter {
 public:
  explicit StageMeter(const std::vector<Instance>& instances);

  void begin(size_t instance);
  /// The current action has what it waited for.
  void ready();
  void end();
  /// By instance, since the last call.
  std::vector<StageNumbers> take();

 private:
  using Clock = std::chrono::steady_clock;
  std::vector<StageNumbers> numbers_;
  size_t instance_ = 0;
  Clock::time_point since_;
};

}  // namespace graphpipe::runtime
