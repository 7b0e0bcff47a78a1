#pragma once
// What each stage of a rank does with its time: a few numbers per step, where a trace has every action (tracer.h).

#include <chrono>
#include <cstdint>
#include <vector>

#include "runtime/executor/resolve.h"

namespace graphpipe::runtime {

struct StageNumbers {
  int32_t stage = -1, replica = 0;
  /// Seconds of the rank's thread in the stage's actions: while one has what it needs (on a GPU until its kernels are
  /// queued), and while one waits for messages, for reductions, or for a send that still reads its memory.
  double busy = 0, waiting = 0;
};

class StageMeter {
 public:
  explicit StageMeter(const std::vector<Instance>& instances);

  void begin(size_t instance);
  /// The action that has begun has what it waited for.
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
