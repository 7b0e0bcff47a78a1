#include "runtime/training/kept_statistics.h"

#include "runtime/program.h"

namespace graphpipe::runtime {

void KeptStatistics::keep(const std::vector<StageState*>& states) {
  states_ = states;
  kept_.clear();
  for (const StageState* state : states_) {
    std::vector<at::Tensor>& kept = kept_.emplace_back(state->weights.size());
    for (size_t i = 0; i < kept.size(); ++i)
      if (state->entry->params[i].role == ParamRole::kBuffer) kept[i] = state->weights[i].clone();
  }
}

void KeptStatistics::put_back() const {
  for (size_t s = 0; s < states_.size(); ++s)
    for (size_t i = 0; i < kept_[s].size(); ++i)
      if (kept_[s][i].defined()) states_[s]->weights[i].copy_(kept_[s][i]);
}

}  // namespace graphpipe::runtime
