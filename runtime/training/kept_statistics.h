#pragma once
// Running statistics as they were before a step, for steps that are left out.

#include <ATen/core/Tensor.h>

#include <vector>

#include "runtime/executor/stage_state.h"

namespace graphpipe::runtime {

class KeptStatistics {
 public:
  /// Copies the buffers of these states, which outlive it.
  void keep(const std::vector<StageState*>& states);
  /// Gives the states their buffers back. Needs: keep() was called.
  void put_back() const;

 private:
  std::vector<StageState*> states_;
  std::vector<std::vector<at::Tensor>> kept_;  // by state; those of buffers are defined
};

}  // namespace graphpipe::runtime
