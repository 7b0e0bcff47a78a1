#pragma once
// Copies of running statistics from before a step, for steps that are skipped.

#include <ATen/core/Tensor.h>

#include <vector>

#include "runtime/executor/stage_state.h"

namespace graphpipe::runtime {

class KeptStatistics {
 public:
  /// Copies the buffers of these states, which must outlive it.
  void keep(const std::vector<StageState*>& states);
  /// Restores the states' buffers. Needs: keep() was called.
  void put_back() const;

 private:
  std::vector<StageState*> states_;
  std::vector<std::vector<at::Tensor>> kept_;  // by state; those of buffers are defined
};

}  // namespace graphpipe::runtime
