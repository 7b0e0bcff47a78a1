#include "codegen/autograd_oracle.h"

namespace graphpipe::codegen {

void make_oracle(StageCut& cut) {
  cut.by_autograd = true;
  cut.steps.input_gradient.clear();
  cut.steps.weight_gradient.clear();
  cut.steps.shares.clear();
  // As with recomputation, the forward must leave data and loss scale in their slots: the backward runs it again.
  cut.recompute = true;
}

std::string autograd_includes() {
  return "\n#include <ATen/core/Tensor.h>\n#include <c10/core/InferenceMode.h>\n\n#include <vector>\n\n"
         "#include \"runtime/add_share.h\"\n";
}

std::string autograd_function(const ir::Graph& graph, const StageCut& cut, const SlotLayout& layout) {
  std::string trainable;
  for (ir::ParamId param : cut.params) trainable += graph.param(param).trainable ? "true, " : "false, ";
  return text(R"(void weight_gradient(const graphpipe::runtime::StageArguments& a) {
  // Ordinary tensors that record, whatever mode the caller runs in.
  const c10::InferenceMode ordinary(false);
  constexpr bool kTrainable[] = {)",
              trainable, R"(};
  std::vector<at::Tensor> weights, slot()",
              layout.slots.size(), R"();
  for (size_t i = 0; i < std::size(kTrainable); ++i)
    weights.push_back(a.weights[i].clone().set_requires_grad(kTrainable[i]));
  for (size_t i = 0; i < slot.size(); ++i)
    if (a.slot[i].defined()) slot[i] = a.slot[i].clone();
  graphpipe::runtime::StageArguments again = a;
  again.weights = weights.data();
  again.slot = slot.data();
  forward(again);
  slot[)",
              layout.loss, R"(].backward();
  const c10::InferenceMode as_before(true);
  for (size_t i = 0; i < weights.size(); ++i)
    if (kTrainable[i] && weights[i].grad().defined()) graphpipe::runtime::add_share(a.gradients[i], weights[i].grad());
}
)");
}

}  // namespace graphpipe::codegen
