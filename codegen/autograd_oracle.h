#pragma once
// An independent way to compute gradients, for tests: the forward runs again under autograd, and LibTorch computes the
// backward. It shares nothing with the compiled gradients except the forward code of the operators.

#include <string>

#include "codegen/slot_layout.h"

namespace graphpipe::codegen {

/// Keeps the stage's forward and takes its gradients from autograd. Needs: the stage holds the whole graph.
void make_oracle(StageCut& cut);

std::string autograd_includes();
/// The definition of weight_gradient, which runs `forward` of the same namespace on copies that record.
std::string autograd_function(const ir::Graph& graph, const StageCut& cut, const SlotLayout& layout);

}  // namespace graphpipe::codegen
