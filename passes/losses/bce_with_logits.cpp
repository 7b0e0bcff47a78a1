// bce:OUTPUT,LABEL: binary cross entropy of logits, mean over all elements.

#include "passes/losses/loss_def.h"

namespace graphpipe::passes {
namespace {

constexpr std::string_view kSigmoid[] = {"Sigmoid"};

Result<AttachedLoss> attach_bce_with_logits(LossBuilder& builder, ir::ValueId output) {
  const ir::TensorType type = builder.type(output);
  GP_TRY(const int64_t elements, builder.elements_per_sample(output));
  GP_TRY(const ir::ValueId label, builder.label_of(type.dtype, type.shape));
  GP_TRY(const ir::ValueId sum, builder.append("BceWithLogitsSum", {output, label}));
  return AttachedLoss{sum, {.elements_per_sample = elements}};
}

}  // namespace

extern const LossDef kBceWithLogitsLoss = {
    .name = "bce", .takes_label = true, .own_activations = kSigmoid, .attach = attach_bce_with_logits};

}  // namespace graphpipe::passes
